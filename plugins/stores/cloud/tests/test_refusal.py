from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, InvalidPathError, PermissionDeniedError
from tritonpy.errors import ErrorCode
from tritonpy_store_cloud.location import read_location
from tritonpy_store_cloud.refusal import Refusal, read_refusal

ROOT = "s3://http://minio:9000/bucket/models"


def refusal(error: Exception, root: str = ROOT) -> Refusal:
    return read_refusal(error, read_location(root), "AWS_ACCESS_KEY_ID", ["s3cr3t"], 20)


def answered(status: int, code: str, message: str = "Said the store.") -> str:
    return (
        f"Generic S3 error: Error performing list request: Error performing GET http://x - Server returned "
        f"non-2xx status code: {status} X: "
        f"<Error><Code>{code}</Code><Message>{message}</Message><StringToSign>s3cr3t</StringToSign></Error>"
    )


@pytest.mark.parametrize(
    ("error", "code", "texts"),
    [
        (
            GenericError(answered(404, "NoSuchBucket")),
            ErrorCode.INTERNAL,
            ["failed to stat file", "no bucket 'bucket'", "404 NoSuchBucket: Said the store."],
        ),
        (
            GenericError(answered(403, "SignatureDoesNotMatch")),
            ErrorCode.INTERNAL,
            [
                "may not be read with AWS_ACCESS_KEY_ID",
                "403 SignatureDoesNotMatch",
                "AWS_SKIP_SIGNATURE=true",
            ],
        ),
        (PermissionDeniedError("for path x: 403 Forbidden: "), ErrorCode.INTERNAL, ["may not be read with"]),
        (
            GenericError("Received redirect without LOCATION, this normally indicates an incorrect region"),
            ErrorCode.INTERNAL,
            ["another region", "AWS_DEFAULT_REGION"],
        ),
        (
            InvalidPathError('Error parsing Path "models/m/../x": Encountered illegal'),
            ErrorCode.INVALID_ARG,
            ["'models/m/../x'", "expected keys without"],
        ),
        (
            GenericError('error sending request\n ... message: "Connection refused"'),
            ErrorCode.UNAVAILABLE,
            [
                "cannot be reached at http://minio:9000: connection refused",
                "20 s (--repository-timeout-secs)",
            ],
        ),
        (
            GenericError("Error performing GET http://role - Server returned non-2xx status code: 404 X"),
            ErrorCode.INTERNAL,
            ["AWS_ACCESS_KEY_ID gives no credentials: 404", "AWS_SKIP_SIGNATURE=true"],
        ),
        (
            GenericError("HTTP error: missing field\n source: HttpError { kind: Decode, s3cr3t }"),
            ErrorCode.INTERNAL,
            ["gives no credentials"],
        ),
        (
            GenericError("Error performing GET http://x - Server returned non-2xx status code: 429 X"),
            ErrorCode.UNAVAILABLE,
            ["429"],
        ),
        (GenericError("... kind: TimedOut"), ErrorCode.UNAVAILABLE, ["no answer in time"]),
        (GenericError("... dns error ..."), ErrorCode.UNAVAILABLE, ["its name is not known"]),
        (GenericError(answered(503, "SlowDown")), ErrorCode.UNAVAILABLE, ["503 SlowDown"]),
        (RuntimeError("s3cr3t and more s3cr3t"), ErrorCode.UNAVAILABLE, ["RuntimeError"]),
    ],
)
def test_errors_of_clients_say_what_is_wrong_and_what_to_do(
    error: Exception, code: ErrorCode, texts: list[str]
) -> None:
    found = refusal(error)

    assert found.code is code
    assert ROOT in found.message
    for text in texts:
        assert text in found.message
    assert "s3cr3t" not in found.message
    assert found.may_pass is (code is ErrorCode.UNAVAILABLE)


def test_secrets_that_a_store_repeats_are_struck_out() -> None:
    found = refusal(GenericError(answered(403, "Denied", "your key s3cr3t is wrong")))

    assert "your key *** is wrong" in found.message


def test_an_object_that_is_not_there_is_told_from_a_bucket_that_is_not() -> None:
    assert refusal(FileNotFoundError(answered(404, "NoSuchKey"))).is_missing
    assert not refusal(FileNotFoundError(answered(404, "NoSuchBucket"))).is_missing


def test_each_cloud_has_its_words() -> None:
    google = refusal(GenericError(answered(401, "AuthenticationRequired")), "gs://bucket")
    azure = refusal(GenericError(answered(404, "ContainerNotFound")), "as://account/container")

    assert "GOOGLE_SKIP_SIGNATURE" in google.message
    assert "no container 'container'" in azure.message
