"""What of threads a source makes by hand and keeps: locks, queues and pools, by the class that holds them."""

import ast

LOCKS = {"threading.Lock", "threading.RLock", "threading.Condition"}
SHARED = {
    "queue.SimpleQueue", "queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "threading.Semaphore",
    "threading.BoundedSemaphore", "threading.Barrier", "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures.ProcessPoolExecutor",
}  # fmt: skip
FLAG = "threading.Event"


def made_by_hand(text):
    """Lines by class: each lock; queues and pools that are kept without ``forks.in_child``; flags of a module."""
    search = _Search()
    search.visit(ast.parse(text))
    lines = {}
    for holder, line, kind in search.made:
        if kind in LOCKS or holder not in search.told:
            lines.setdefault(holder, []).append(line)
    return lines


class _Search(ast.NodeVisitor):
    """Keeps what is made in a module; a name is what its import says it is, under whichever name."""

    def __init__(self):
        self.origins, self.made, self.told = {}, [], set()
        self.holder, self.is_local, self.is_kept = "", False, False

    def visit_Import(self, node):
        self.origins |= {one.asname: one.name for one in node.names if one.asname}

    def visit_ImportFrom(self, node):
        self.origins |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}

    def visit_ClassDef(self, node):
        self._inside(node, holder=node.name, is_local=False)

    def visit_FunctionDef(self, node):
        self._inside(node, is_local=True)

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Assign(self, node):
        targets = getattr(node, "targets", None) or [node.target]
        names = [each for one in targets for each in (one.elts if isinstance(one, ast.Tuple) else [one])]
        self._inside(node, is_kept=not self.is_local or any(not isinstance(one, ast.Name) for one in names))

    visit_AnnAssign = visit_Assign

    def visit_Return(self, node):
        self._inside(node, is_kept=True)

    def visit_keyword(self, node):
        """What a field is made by, on its own."""
        if not isinstance(node.value, ast.Call):
            self._note(node.value, is_kept=True)
        self.generic_visit(node)

    def visit_Call(self, node):
        if self._origin(node.func).endswith("forks.in_child"):
            self.told.add(self.holder)
        if not (self._origin(node.func) == "threading.Condition" and node.args):  # it is the lock that it is given
            self._note(node.func, is_kept=self.is_kept)
        self.generic_visit(node)

    def _note(self, maker, *, is_kept):
        kind = self._origin(maker)
        if kind in LOCKS or (kind in SHARED and is_kept) or (kind == FLAG and is_kept and not self.is_local):
            self.made.append((self.holder, maker.lineno, kind))

    def _origin(self, node):
        first, _, rest = ast.unparse(node).partition(".")
        return ".".join(filter(None, (self.origins.get(first, first), rest)))

    def _inside(self, node, **changes):
        before = self.holder, self.is_local, self.is_kept
        vars(self).update(changes)
        self.generic_visit(node)
        self.holder, self.is_local, self.is_kept = before
