"""What stores answer to signed requests: pages of uploads, refusals, and conditions that are honoured or not."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from model_checkpoint.errors import PermissionRefused, StorageFailure
from model_checkpoint.storage.objects.requests import signed_requests
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.requests.signed_requests import (
    NotOffered,
    Signer,
    Upload,
    abort_upload,
    list_uploads,
    remove_mark,
    send_signed,
)

KEYS = {"access_key_id": "me", "secret_access_key": "hush"}


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def bucket_of(url="s3://bucket/root", **config):
    return Bucket(Address.parse(url), SimpleNamespace(config=config))


class Answering:
    """A server that answers what it is told to, and remembers what it was asked."""

    def __init__(self):
        self.answers, self.asked = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_any(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append((self.command, self.path, headers))
                status, body = outer.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_DELETE = do_any

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def bucket(self, **more):
        return bucket_of(endpoint=self.endpoint, **KEYS, **more)


@pytest.fixture
def answering():
    server = Answering()
    yield server
    server.server.shutdown()
    server.server.server_close()


def page(*uploads, more=""):
    listed = "".join(
        f"<Upload><Key>{key}</Key><UploadId>{id_}</UploadId><Initiated>{when}</Initiated></Upload>"
        for key, id_, when in uploads
    )
    return f'<R xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{listed}{more}</R>'.encode()


# --- who signs, and where to -----------------------------------------------------------------------------------------


def test_requests_go_where_the_client_goes():
    plain = Signer.of(bucket_of(**KEYS))
    told = Signer.of(bucket_of(**KEYS, region="eu-1", endpoint="http://host:1/", session_token="t"))
    hosted = Signer.of(bucket_of(**KEYS, endpoint="https://bucket.host/", virtual_hosted_style_request="TRUE"))
    odd = Signer.of(bucket_of(**KEYS, default_region="eu-2", virtual_hosted_style_request="true", token="u"))

    assert (plain.endpoint, plain.region, plain.token) == ("https://s3.us-east-1.amazonaws.com/bucket", "us-east-1", "")
    assert (told.endpoint, told.region, told.token) == ("http://host:1/bucket", "eu-1", "t")
    assert hosted.endpoint == "https://bucket.host"
    assert (odd.endpoint, odd.region, odd.token) == ("https://s3.eu-2.amazonaws.com/bucket", "eu-2", "u")


def test_nobody_signs_without_a_key_and_a_secret_of_s3(monkeypatch):
    assert Signer.of(bucket_of()) is None
    assert Signer.of(bucket_of(access_key_id="me")) is None
    assert Signer.of(bucket_of(secret_access_key="hush")) is None
    assert Signer.of(bucket_of("gs://bucket/root", **KEYS)) is None
    with pytest.raises(StorageFailure, match=r"DELETE needs credentials of S3 that can be read\. Set AWS"):
        send_signed(bucket_of(), "DELETE", "a")
    assert list_uploads(bucket_of(), "checkpoints") == []
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert Signer.of(bucket_of()).access == "env"
    assert Signer.of(bucket_of(aws_region="eu-3")).region == "eu-3"
    assert Signer.of(bucket_of(**KEYS)).access == "me"
    assert Signer.of(bucket_of(access_key_id="me")) is None  # the key of one and the secret of another fit nobody


# --- answers ---------------------------------------------------------------------------------------------------------


def test_uploads_are_listed_page_by_page(answering):
    more = (
        "<IsTruncated>true</IsTruncated><NextKeyMarker>k 1</NextKeyMarker><NextUploadIdMarker>u1</NextUploadIdMarker>"
    )
    first = page(("root/checkpoints/a/x", "u1", "2026-01-01T00:00:00Z"), more=more)
    last = page(("root/checkpoints/b/y", "u2", "2026-01-01T00:00:00"), ("other/z", "u3", "whenever"))
    answering.answers = [(200, first), (200, last)]

    found = list_uploads(answering.bucket(session_token="t"), "checkpoints")

    assert [(one.key, one.id) for one in found] == [
        ("checkpoints/a/x", "u1"),
        ("checkpoints/b/y", "u2"),
        ("other/z", "u3"),
    ]
    assert found[0].begun == found[1].begun
    assert found[2].begun is None
    queries = [parse_qs(urlsplit(path).query, keep_blank_values=True) for _, path, _ in answering.asked]
    assert queries[0] == {"uploads": [""], "prefix": ["root/checkpoints/"]}
    assert queries[1] == {**queries[0], "key-marker": ["k 1"], "upload-id-marker": ["u1"]}
    assert [urlsplit(path).path for _, path, _ in answering.asked] == ["/bucket", "/bucket"]
    assert answering.asked[0][2]["x-amz-security-token"] == "t"


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_where_uploads_cannot_be_listed_there_are_none(answering, status, caplog):
    answering.answers = [(status, b"no")]
    caplog.set_level("INFO")

    assert list_uploads(answering.bucket(), "checkpoints") == []
    assert "let a lifecycle rule of the bucket end them" in caplog.text


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"<R>", "the list of uploads cannot be read"), (b"", "cannot be read"),
        (b"<!DOCTYPE x><R></R>", "is no plain XML"), (b" " * 2000 + b'<!ENTITY a "b">', "is no plain XML"),
    ],
    ids=["cut", "empty", "doctype", "entity"],
)  # fmt: skip
def test_what_is_no_list_is_refused(answering, answer, told):
    answering.answers = [(200, answer)]

    with pytest.raises(StorageFailure, match=rf"s3://bucket/root: the list of uploads {told}|{told}"):
        list_uploads(answering.bucket(), "checkpoints")


STATUSES = {
    403: PermissionRefused, 404: KeyMissing, 405: NotOffered, 412: ConditionFailed, 501: NotOffered,
    500: StorageFailure,
}  # fmt: skip


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_each_status_is_an_error_of_its_own(answering, status, kind):
    answering.answers = [(status, b"hush")]

    with pytest.raises(
        kind, match=rf"s3://bucket/root/a/b: GET failed with status {status}\. Try again later"
    ) as caught:
        send_signed(answering.bucket(), "GET", "a/b")

    assert type(caught.value) is kind
    assert "hush" not in str(caught.value)


def test_a_store_that_is_not_there_is_told_without_secrets():
    with pytest.raises(StorageFailure, match=r"GET failed \(.*Check the network, then try again") as caught:
        send_signed(bucket_of(endpoint="http://127.0.0.1:9", **KEYS), "GET", "a")
    assert "hush" not in str(caught.value)


def test_an_upload_that_is_gone_already_is_ended(answering):
    answering.answers = [(204, b""), (404, b""), (500, b"")]
    upload = Upload(key="checkpoints/a/x", id="u 1", begun=None)

    abort_upload(answering.bucket(), upload)
    abort_upload(answering.bucket(), upload)
    with pytest.raises(StorageFailure, match="status 500"):
        abort_upload(answering.bucket(), upload)

    assert {path for _, path, _ in answering.asked} == {"/bucket/root/checkpoints/a/x?uploadId=u%201"}


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([412, 204], ['"00000000000000000000000000000000"', '"tag"']), ([204], ['"00000000000000000000000000000000"']),
        ([501], ['"00000000000000000000000000000000"']), ([412, 412], ['"00000000000000000000000000000000"', '"tag"']),
        ([412, 404], ['"00000000000000000000000000000000"', '"tag"']),
    ],
    ids=str,
)  # fmt: skip
def test_a_mark_is_removed_only_where_the_condition_is_honoured(answering, answers, asked):
    answering.answers = [(status, b"") for status in answers]

    remove_mark(answering.bucket(), "checkpoints/a/manifest.json", {"e_tag": '"tag"'})

    assert [headers["if-match"] for _, _, headers in answering.asked] == asked


def test_a_mark_without_a_version_or_a_signer_stays(answering):
    remove_mark(answering.bucket(), "checkpoints/a/manifest.json", {})
    remove_mark(bucket_of(endpoint=answering.endpoint), "checkpoints/a/manifest.json", {"e_tag": '"tag"'})

    assert answering.asked == []


def test_a_list_without_end_is_read_so_far(answering, monkeypatch):
    monkeypatch.setattr(signed_requests, "_PAGES", 3)
    answering.answers = [(200, page(("k", "u", ""), more="<IsTruncated> true </IsTruncated>"))] * 9

    assert len(list_uploads(answering.bucket(), "checkpoints")) == 3
