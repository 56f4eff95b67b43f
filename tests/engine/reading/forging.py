"""Manifests an enemy made: a sound one is changed where it can hurt most, and signed again."""

import hashlib
import json
import random
from pathlib import Path

import msgspec

CLASSES = (
    "time:struct_time", "os:stat_result", "torch:Size", "torch:dtype", "enum:Flag", "enum:IntFlag", "enum:Enum", "a",
    ":",
    "builtins:dict", "builtins:tuple", "builtins:Exception", "re:RegexFlag", "dataclasses:Field", "os:path.x", "os:",
    "",
    "urllib.parse:ParseResult", "ssl:Options", "this:Zen", "argparse:Namespace", "subprocess:Popen", "__main__:Config",
    "json.decoder:JSONDecodeError", "tests.engine.reading.test_forgeries:Abstract", "torch._inductor.config:x",
    "tests.engine.reading.test_forgeries:Failure", "tests.engine.reading.test_forgeries:Shadowed",
    "collections:OrderedDict",
)  # fmt: skip
TAGS = (
    "a", "v", "d", "k", "o", "l", "t", "s", "fs", "nt", "dc", "e", "m", "x", "f", "i", "u", "b", "B", "c", "date",
    "time",
    "datetime", "timedelta", "timezone", "zone", "np", "npdtype", "torch.Size", "torch.dtype", "torch.device", "-", "?",
)  # fmt: skip
DTYPES = (
    "float32", "int8", "int64", "bool", "bfloat16", "complex64", "complex128", "float8_e4m3fn", "float4_e2m1fn_x2",
    "int4",
    "object", "|O", "record:[]", 'record:[["a","|O"]]', 'record:[["a","<f4",[9999999999]]]', "record:[[[[", "|V0",
    "|V3",
    "<U0", "<U999999999", "|S1", "datetime64[s]", "timedelta64[7/0s]", "datetime64[99999999999999999999s]",
    "longdouble@x",
    ">float32", ">datetime64[s]", ">|V3", "quint8", "complex32", "uint1", "", "?",
)  # fmt: skip
KINDS = ("torch", "numpy", "jax", "tensorflow", "bytes", "bytearray", "?")
CODECS = (
    "torch.Generator", "random.Random", "numpy.random.Generator", "numpy.random.RandomState", "collections.Counter",
    "collections.deque", "uuid.UUID", "decimal.Decimal", "builtins.range", "collections.defaultdict[list]",
    "collections.defaultdict[subprocess.Popen]", "pathlib.PosixPath", "torch.nn.Module", "os.system", "?",
)  # fmt: skip
WORDS = (
    "", "x", "_inductor", "compile", "cuda:99", "meta", "xla", "Europe", "../../etc/passwd", "a\0b", "UTC", "0x1p99999",
    "0x" + "f" * 9000, "9" * 9000, "9999-12-31", "24:00", "2026-01-01T00:00:00", "AAAA", "%%%", "apart", "variable",
    "key",
    "threefry2x32", "p", "q", "g", "n" * 3000, "state", "param_groups", "params", "module", "optimizer", "scheduler",
    "scaler", "rng", "object", "python", "numpy", "torch", "a.b", "MT19937", "PCG64",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 63, 70, 1 << 31, -(1 << 31), (1 << 53) - 1, 1 << 62, 1 << 63, -(1 << 63), 1 << 70, 10**40)
SIDES = (0, 1, 1, 2, 2, 3, 1 << 40, 1 << 62, 1 << 70, -1)
STEPS = (0, 1, 4, 8, -4, -8, 3, 1 << 40, 1 << 62, 1 << 70)


def read_manifest(folder):
    """The top-level object of a checkpoint's manifest."""
    return json.loads((Path(folder) / "manifest.json").read_bytes().rpartition(b"\n")[0])


def write_manifest(folder, top):
    """Put ``top`` in its place, rightly signed."""
    line = msgspec.json.encode(top)
    (Path(folder) / "manifest.json").write_bytes(line + b"\n" + hashlib.sha256(line).hexdigest().encode())


def read_rank(folder, top, rank):
    """The top-level object of the manifest of one rank."""
    return json.loads((Path(folder) / top["ranks"][rank][0]).read_bytes())


def write_rank(folder, top, rank, forged):
    """Put the manifest of one rank in its place, and sign the one of the checkpoint for it."""
    data = msgspec.json.encode(forged)
    record = top["ranks"][rank]
    (Path(folder) / record[0]).write_bytes(data)
    signed = [record[0], len(data), hashlib.sha256(data).hexdigest(), *record[3:]]
    ranks = [signed if number == rank else other for number, other in enumerate(top["ranks"])]
    write_manifest(folder, {**top, "ranks": ranks})


class Forger:
    """Makes one forgery after the other from sound parts and hostile ones, always the same for one seed."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.pick = self.dice.choice

    def forge(self, top):
        """Return a copy of ``top`` with one to three places changed."""
        forged = json.loads(json.dumps(top))
        for _ in range(self.pick((1, 1, 1, 2, 3))):
            what = self.dice.choices(("node", "entry", "tree", "metadata", "files", "top"), (65, 18, 10, 4, 2, 1))[0]
            if what == "node":
                self.replace_node(forged)
            elif what == "entry" and isinstance(forged.get("entries"), list) and forged["entries"]:
                self.change_entry(self.pick(forged["entries"]))
            elif what in ("tree", "metadata"):
                forged[what] = self.junk(forged[what])
            elif what == "files":
                table = self.pick(("files", "extras", "ranks", "layouts", "placed"))
                forged[table] = self.junk(forged[table])
            else:
                forged[self.pick(list(forged))] = self.part()
        return forged

    def forge_rank(self, top):
        """Return a copy of a rank's manifest with one to three places changed."""
        forged = json.loads(json.dumps(top))
        for _ in range(self.pick((1, 1, 2, 3))):
            what = self.dice.choices(("piece", "table", "top"), (60, 35, 5))[0]
            table = self.pick(("pieces", "files"))
            if what == "piece" and isinstance(forged["pieces"], list) and forged["pieces"]:
                self.change_piece(self.pick(forged["pieces"]))
            elif what == "table":
                forged[table] = self.junk(forged[table])
            else:
                forged[self.pick(list(forged))] = self.part()
        return forged

    def change_piece(self, piece):
        """Give one field of a stored piece another value of its type."""
        if not isinstance(piece, list) or len(piece) < 8:
            return
        sides = [self.pick(SIDES) for _ in range(self.pick((0, 1, 2, 2, 3, 70)))]
        made = (
            self.pick(NUMBERS), self.pick(WORDS), sides, sides, self.pick((0, 1, -1, 1 << 40, 1 << 70)),
            self.pick(NUMBERS), self.pick(NUMBERS), self.pick(WORDS),
        )  # fmt: skip
        field = self.dice.randrange(8)
        piece[field] = made[field] if self.dice.random() < 0.5 else self.near(piece[field])

    def replace_node(self, top):
        """Put a hostile node where a sound one stands."""
        places = list(_children(top["tree"]))
        if not places:
            top["tree"] = self.node()
            return
        holder, at = self.pick(places)
        holder[at] = self.deep(holder[at]) if self.dice.random() < 0.1 else self.node()

    def change_entry(self, entry):
        """Give one field of a stored array another value of its type."""
        if not isinstance(entry, list) or len(entry) < 10:
            return
        sides = [self.pick(SIDES) for _ in range(self.pick((0, 1, 2, 3, 64, 70)))]
        made = {
            0: self.pick(WORDS), 1: self.pick(KINDS), 2: self.pick(DTYPES), 3: sides, 4: self.pick(("F32", "U8",
            "F99")),
            5: self.pick((None, sides, [8])), 6: self.pick((0, 1, -1, 1 << 70)), 7: self.pick(NUMBERS),
            8: self.pick(NUMBERS), 9: self.pick(WORDS), 10: self.attributes(),
        }  # fmt: skip
        field = self.pick((1, 2, 2, 10, 10, *range(11)))
        entry[field : field + 1] = [made[field]]

    def attributes(self):
        """Return remarks of an adapter."""
        return self.pick(
            (["key", self.pick(WORDS)], ["variable", True, self.pick(WORDS)], "apart", self.part(), self.deep(None))
        )

    def junk(self, node):
        """Return ``node`` with anything at any place of it."""
        places = list(_places(node))
        if not places:
            return self.part()
        holder, at = self.pick(places)
        do = self.dice.random()
        if do < 0.5:
            holder[at] = self.pick((self.node, self.part))()
        elif do < 0.65:
            del holder[at]
        elif do < 0.8:
            holder.insert(at, self.part())
        else:
            holder[at] = self.near(holder[at])
        return node

    def node(self):
        """Return a node of any tag, in a form that may pass for sound."""
        makers = (self.record, self.view, self.atom, self.container, self.whole, self.anything)
        return self.dice.choices([make() for make in makers], (20, 20, 25, 15, 10, 10))[0]

    def anything(self):
        """Return a tag with parts that need not fit it."""
        return [self.pick(TAGS), *(self.part() for _ in range(self.dice.randrange(5)))]

    def part(self):
        """Return what stands inside a node."""
        if self.dice.random() < 0.3:
            return [self.part() for _ in range(self.dice.randrange(4))]
        return self.pick((*NUMBERS, *WORDS, None, True, 1.5))

    def atom(self):
        """Return a scalar that may be none."""
        word, pick = self.pick(WORDS), self.pick
        hexes = pick(("0x1p3", "nan", "0x1p99999", "zz", 5))
        return pick(
            (
                ["f", hexes], ["i", word], ["u", word], ["b", word], ["B", word], ["c", hexes, hexes], ["date", word],
                ["time", word, None, 0], ["datetime", word, ["timezone", ["timedelta", pick(NUMBERS), 0, 0], None], 1],
                ["timedelta", pick(NUMBERS), pick(NUMBERS), word], ["zone", word], ["zone", pick(NUMBERS)],
                ["np", pick(DTYPES), word], ["npdtype", pick((*DTYPES, 8, None, []))], ["torch.dtype", pick((word,
                "int8"))],
                ["torch.device", word], ["torch.Size", [pick(NUMBERS)]], pick(NUMBERS), word, None,
            )
        )  # fmt: skip

    def container(self):
        """Return a container of hostile members."""
        items = [self.pick((self.atom, self.view, self.part))() for _ in range(self.dice.randrange(4))]
        flat = [half for item in items for half in (self.pick((self.atom, self.part))(), item)]
        tag = self.pick(("d", "k", "o", "l", "t", "s", "fs"))
        return [tag, flat if tag in "dko" else items, *([True, self.part()] if tag == "o" else [])]

    def record(self):
        """Return an object of some class in the program."""
        cls, pick = self.pick(CLASSES), self.pick
        names = pick(([], ["a"], ["args"], ["a", "b"], [0], ["x"]))
        state = pick((["d", []], ["d", ["a", 1]], self.part()))
        return pick(
            (
                ["nt", cls, names, [1] * len(names)], ["dc", cls, names, [1] * len(names)],
                ["e", cls, pick((None, "", "A", "OP_ALL")), pick((self.part(), ["i", "0x" + "f" * 9000], 3))],
                ["x", pick(CODECS), pick((self.part(), state, ["t", [1, 2, 3]], ["a", 0]))],
                ["m", pick(("rng", "module", "optimizer", "object")), cls, state],
                ["m", "optimizer", cls, ["d", ["state", state, "param_groups", ["l", []]]], [["a", [2]]]],
                ["o", [], True, pick((["a", 0], ["d", ["", ["a", 1]]], 5))],
            )
        )  # fmt: skip

    def whole(self):
        """Return a whole stored array with flags."""
        return ["a", self.dice.randrange(12), *self.pick(([], ["g"], ["p"], ["q"], ["z"], [5], ["g", 1]))]

    def view(self):
        """Return a view that may lie anywhere."""
        pick, rank = self.pick, self.pick((0, 1, 1, 2, 2, 3, 70))
        steps = pick((None, [pick(STEPS) for _ in range(rank)], [pick((0, 4, -4)) for _ in range(rank)]))
        return [
            "v", pick((*range(12), 99, -1)), pick(KINDS), pick((*DTYPES, "float32", "float32", "uint8", "int8")),
            [pick(SIDES) for _ in range(rank)], steps, pick((0, 0, 0, 4, 8, 3, 1 << 40, -4)),
            pick(("", "", "p", "q", "g", "z")), pick((0, 1, 1 << 70)),
        ]  # fmt: skip

    def near(self, value):
        """Return something that looks like ``value``."""
        if isinstance(value, bool) or value is None:
            return self.pick((None, True, False, 0, ""))
        if isinstance(value, int):
            return value + self.pick((-1, 1, 8, -value, 1 << 40))
        if isinstance(value, str):
            at = self.dice.randrange(len(value) + 1)
            return value[:at] + self.pick(("", ".", "%", "0", "Z", "\n")) + value[at + 1 :]
        return [*value, *value] if isinstance(value, list) else value

    def deep(self, value):
        """Return ``value`` inside very many containers of one kind."""
        wrap = self.pick(
            (
                lambda inner: ["l", [inner]],
                lambda inner: ["t", [inner]],
                lambda inner: ["d", ["a", inner]],
                lambda inner: ["x", "collections.Counter", inner],
                lambda inner: ["m", "object", "a:b", inner],
                lambda inner: ["s", [["fs", [inner]]]],
                lambda inner: ["d", [["t", [inner]], 1]],
                lambda inner: ["o", [], True, inner],
                lambda inner: ["timezone", inner, None],
                lambda inner: [inner],
            )
        )
        for _ in range(self.pick((20, 60, 100, 126, 130, 200))):
            value = wrap(value)
        return value


def _places(node):
    """Yield (list, position) of everything inside ``node``."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            for at, item in enumerate(one):
                yield one, at
                pending.append(item)


def _children(node):
    """Yield (list, position) of the nodes that stand inside containers, where another node may well stand."""
    pending = [node]
    while pending:
        inner, places = _inner(pending.pop())
        for at in places:
            yield inner, at
            pending.append(inner[at])


def _inner(node):
    """Return the list that holds the nodes of a container, and where in it they are."""
    match node:
        case ["d" | "k" | "o", list(flat), *_]:
            return flat, range(1, len(flat), 2)
        case ["l" | "t", list(items)]:
            return items, range(len(items))
        case ["nt" | "dc", str(), list(), list(items)]:
            return items, range(len(items))
        case ["m", _, _, _, *_]:
            return node, (3,)
        case ["x", _, _]:
            return node, (2,)
    return [], ()
