"""Requests are signed as AWS signs them: its published examples, and its own library, come to the same signatures."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from model_checkpoint.storage.objects.requests.signed_requests import Signer, canonical_request

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

# The test suite of Signature Version 4: one service, one moment, many shapes of requests.
SUITE = Signer(
    endpoint="https://example.amazonaws.com",
    region="us-east-1",
    access="AKIDEXAMPLE",
    secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    service="service",
)
SUITE_TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
SUITE_HEADERS = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}

# The examples in the documentation of S3: exactly the headers that our requests have.
S3 = Signer(
    endpoint="https://examplebucket.s3.amazonaws.com",
    region="us-east-1",
    access="AKIAIOSFODNN7EXAMPLE",
    secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
S3_TIME = datetime(2013, 5, 24, tzinfo=UTC)


def test_the_canonical_request_and_the_string_to_sign_are_those_of_get_vanilla():
    canonical = canonical_request("GET", "/", "", SUITE_HEADERS)

    assert canonical == (
        f"GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n{EMPTY}"
    )
    assert SUITE.string_to_sign(canonical, SUITE_TIME) == (
        "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n"
        "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63"
    )
    assert SUITE.authorization("GET", "/", "", SUITE_HEADERS, SUITE_TIME) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )


@pytest.mark.parametrize(
    ("method", "uri", "line", "headers", "signature"),
    [
        pytest.param(
            "GET",
            "/",
            "Param1=value1&Param2=value2",
            {},
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            id="get-vanilla-query-order-key-case",
        ),
        pytest.param(
            "GET",
            "/",
            "%E1%88%B4=bar",
            {},
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            id="get-vanilla-utf8-query",
        ),
        pytest.param(
            "GET",
            "/%E1%88%B4",
            "",
            {},
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
            id="get-utf8",
        ),
        pytest.param(
            "GET",
            "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            "",
            {},
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            id="get-unreserved",
        ),
        pytest.param(
            "POST",
            "/",
            "",
            {},
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            id="post-vanilla",
        ),
        pytest.param(
            "POST",
            "/",
            "Param1=value1",
            {},
            "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
            id="post-vanilla-query",
        ),
        pytest.param(
            "GET",
            "/",
            "",
            {"my-header1": " value1", "my-header2": ' "a   b   c"'},
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            id="get-header-value-trim",
        ),
    ],
)
def test_the_signatures_of_the_published_suite_come_out(method, uri, line, headers, signature):
    signed = SUITE.authorization(method, uri, line, SUITE_HEADERS | headers, SUITE_TIME)

    assert signed.rpartition("Signature=")[2] == signature


@pytest.mark.parametrize(
    ("path", "query", "extra", "signature"),
    [
        pytest.param(
            "test.txt",
            {},
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            id="get-object",
        ),
        pytest.param(
            "",
            {"lifecycle": ""},
            {},
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            id="get-bucket-lifecycle",
        ),
        pytest.param(
            "",
            {"prefix": "J", "max-keys": "2"},
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            id="list-objects",
        ),
    ],
)
def test_the_signatures_of_the_documentation_of_s3_come_out(path, query, extra, signature):
    request = S3.request("GET", path, query, extra, S3_TIME)

    assert request.get_header("X-amz-content-sha256") == EMPTY
    assert request.get_header("Authorization", "").rpartition("Signature=")[2] == signature


@pytest.mark.parametrize("token", ["", "a-session-token/with+odd=letters"])
@pytest.mark.parametrize(
    ("method", "path", "query", "extra"),
    [
        ("GET", "", {"uploads": "", "prefix": "runs/a b/checkpoints/"}, {}),
        ("DELETE", "runs/lr=1e-3+wd/x~a1", {"uploadId": "aZ0-_.~/+="}, {}),
        ("DELETE", "runs/a/checkpoints/step-1/manifest.json", {}, {"if-match": '"00"'}),
        ("GET", "", {"key-marker": "\u1234&x=y", "Upload": "1", "upload": "2"}, {"if-match": "  two  blanks "}),
    ],
)
def test_the_library_of_aws_comes_to_the_same_signature(token, method, path, query, extra):
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    signer = replace(S3, endpoint="http://127.0.0.1:8333/bucket", region="eu-north-1", token=token)
    request = signer.request(method, path, query, extra, S3_TIME)
    theirs = AWSRequest(method, request.full_url.partition("?")[0], params=query, headers={**extra})
    theirs.context["timestamp"] = f"{S3_TIME:%Y%m%dT%H%M%SZ}"
    theirs.headers["x-amz-date"] = f"{S3_TIME:%Y%m%dT%H%M%SZ}"
    theirs.headers["x-amz-content-sha256"] = EMPTY
    if token:
        theirs.headers["x-amz-security-token"] = token
    auth = S3SigV4Auth(Credentials(signer.access, signer.secret, token or None), "s3", signer.region)

    signature = auth.signature(auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs)

    assert request.get_header("Authorization", "").rpartition("Signature=")[2] == signature
