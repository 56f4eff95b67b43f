"""Database servers: a real PostgreSQL and a real MariaDB on this machine; loopback only, gone at the end.

Each is started once for each worker that needs it; every test gets a database of its own. Where a server is not
installed its tests are skipped and the end of the run says so; with ``MCKPT_REQUIRE_SERVERS`` set they fail instead.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.ground.ports import free_port
from tests.ground.requirements import missing

PASSWORD = "hush-0123456789"
MISSING = "run tests/install_servers.sh"
_READY_SECONDS = 60.0
_TRIES = 3
_ROOM = 1 << 30
_names = count()


class DatabaseServer:
    """One server process over one folder; it can be killed and started again."""

    kind = ""
    account = "nobody"  # who it runs as when we are root, which both refuse to be

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"mckpt-{self.kind}-", dir=_place()))
        self.data = self.folder / "data"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._user = pwd.getpwnam(self.account) if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._prepare()

    def start(self) -> None:
        """Run it until it answers; at another port if it has none yet or lost it."""
        for left in reversed(range(_TRIES)):
            self.port = self.port or free_port()
            with open(self.folder / "server.log", "ab") as log:
                self.process = subprocess.Popen(
                    [*self._as_user("--pdeathsig", "QUIT"), *self._command()],  # it must not outlive us
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                )
            if self._answers():
                return
            self.kill()
            if not left:
                text = (self.folder / "server.log").read_bytes()[-2000:]
                raise RuntimeError(f"{self.kind} did not start: {text!r}")
            self.port = 0

    def kill(self) -> None:
        """End it at once, as a crash would, and everything it started."""
        if self.process is None:
            return
        family = [self.process.pid, *_children(self.process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        while any(Path(f"/proc/{pid}").exists() for pid in family):
            time.sleep(0.01)
        self.process = None

    def remove(self) -> None:
        """End it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"t{os.getpid()}_{next(_names)}"
        self.admin(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of a database."""
        return f"{self.kind}://mckpt:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def admin(self, statement: str) -> None:
        """Run a statement with all rights."""
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _as_user(self, *options: str) -> list[str]:
        user = self._user
        change = [] if user is None else [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [_installed("setpriv"), *change, *options] if change or options else []

    def _run(self, *command: str) -> None:
        words = [*self._as_user(), *command]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr[-1000:]!r}")

    def _answers(self) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.admin("SELECT 1")
            except Exception:  # noqa: BLE001 - whatever the driver raises while nobody listens, or not yet to us
                time.sleep(0.05)
            else:
                return True
        return False


class Postgres(DatabaseServer):
    """A PostgreSQL server."""

    kind, account = "postgresql", "postgres"

    def _prepare(self) -> None:
        self._programs = _postgres_programs()
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        where = ["-D", str(self.data), "-U", "mckpt", "--auth=scram-sha-256", f"--pwfile={secret}"]
        self._run(str(self._programs / "initdb"), *where, "-E", "UTF8", "--locale=C", "--no-sync")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "32MB",
            "dynamic_shared_memory_type": "mmap",  # in its folder, so that a killed server leaves nothing behind
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def admin(self, statement: str) -> None:
        import psycopg

        url = f"postgresql://mckpt:{PASSWORD}@127.0.0.1:{self.port}/postgres?connect_timeout=5"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement)


class MariaDB(DatabaseServer):
    """A MariaDB server."""

    kind, account = "mysql", "nobody"

    def _prepare(self) -> None:
        self._program = _installed("mariadbd")
        self.data.mkdir()
        grants = self.folder / "init.sql"
        grants.write_text(
            f"CREATE USER IF NOT EXISTS 'mckpt'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO 'mckpt'@'127.0.0.1';\n"
        )
        grants.chmod(0o644)
        if self._user is not None:
            os.chown(self.data, self._user.pw_uid, self._user.pw_gid)
        where = ["--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal"]
        self._run(_installed("mariadb-install-db"), *where, "--skip-test-db", "--skip-log-bin")

    def _command(self) -> list[str]:
        local = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.folder}/socket"]
        size = [
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--max-connections=200",
            "--skip-name-resolve",
        ]
        files = [f"--datadir={self.data}", f"--init-file={self.folder}/init.sql", f"--pid-file={self.folder}/pid"]
        return [self._program, "--no-defaults", *files, *local, *size]

    def admin(self, statement: str) -> None:
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="mckpt", password=PASSWORD, connect_timeout=5, autocommit=True
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)


def _place() -> str:
    """Memory where there is some: the servers flush as ever, and are killed, but no power is cut under them."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > _ROOM else "/tmp"


def _postgres_programs() -> Path:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4]))
    if found:
        return Path(found[-1]).parent
    return Path(_installed("postgres")).parent


def _installed(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        raise FileNotFoundError(f"the program {name} is not installed")
    return path


def _children(parent: int) -> list[int]:
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = Path(stat).read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(stat.split("/")[2]))
    return found


def _running(server: type[DatabaseServer]) -> Iterator[DatabaseServer]:
    try:
        one = server()
    except (FileNotFoundError, KeyError) as error:
        missing(f"no {server.kind} server ({error}): {MISSING}")
    try:
        one.start()
        yield one
    finally:
        one.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[DatabaseServer]:
    """A PostgreSQL server of this worker."""
    yield from _running(Postgres)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A MariaDB server of this worker."""
    yield from _running(MariaDB)


@pytest.fixture
def postgres_url(postgres: DatabaseServer) -> str:
    """An empty database on PostgreSQL."""
    return postgres.new_database()


@pytest.fixture
def mariadb_url(mariadb: DatabaseServer) -> str:
    """An empty database on MariaDB."""
    return mariadb.new_database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path}/catalog.db"


SERVERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("postgres", "mariadb")]


@pytest.fixture(params=["sqlite", *SERVERS])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database, on each of the three."""
    return request.getfixturevalue(f"{request.param}_url")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was skipped for want of a server."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    missing = [reason for reason in reasons if MISSING in reason]
    if missing:
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
        for reason in sorted(set(missing)):
            terminalreporter.line(f"{missing.count(reason)} tests: {reason.removeprefix('Skipped: ')}", red=True)
