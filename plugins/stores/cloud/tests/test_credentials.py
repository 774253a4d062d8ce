from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_store_cloud.credentials import Credentials, find_credentials
from tritonpy_store_cloud.location import read_location

KEY = base64.b64encode(b"key of an account").decode()

TEMPORARY_KEYS = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    "AWS_SESSION_TOKEN": "t0k3n",
}


def found(root: str, tmp_path: Path, **environ: str) -> Credentials:
    return find_credentials(read_location(root), {"HOME": str(tmp_path), **environ})


def credential_file(tmp_path: Path, document: object) -> str:
    path = tmp_path / "credentials.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_keys_of_aws_come_from_the_environment(tmp_path: Path) -> None:
    credentials = found(
        "s3://bucket",
        tmp_path,
        **TEMPORARY_KEYS,
        AWS_DEFAULT_REGION="eu-west-3",
    )

    assert (credentials.key_id, credentials.secret, credentials.session_token) == ("id", "s3cr3t", "t0k3n")
    assert credentials.region == "eu-west-3"
    assert credentials.source == "AWS_ACCESS_KEY_ID"
    assert not credentials.is_anonymous


def test_secrets_are_not_in_the_repr_of_credentials(tmp_path: Path) -> None:
    credentials = found("s3://bucket", tmp_path, **TEMPORARY_KEYS)

    assert "s3cr3t" not in repr(credentials)
    assert "t0k3n" not in repr(credentials)
    assert credentials.secrets == ("s3cr3t", "t0k3n")


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_half_a_key_is_refused(there: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArg, match=f"{there} is given without {missing}") as caught:
        found("s3://bucket", tmp_path, **{there: "s3cr3t"})

    assert "s3cr3t" not in caught.value.message


def test_a_profile_is_read_from_both_files_of_aws(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = of-default\naws_secret_access_key = d\n"
        "[work]\naws_access_key_id = of-work\naws_secret_access_key = w\naws_session_token = t\n"
    )
    (tmp_path / ".aws/config").write_text("[default]\nregion = r-d\n[profile work]\nregion = r-w\n")

    by_default = found("s3://bucket", tmp_path)
    named = found("s3://bucket", tmp_path, AWS_PROFILE="work")
    in_region = found("s3://bucket", tmp_path, AWS_PROFILE="work", AWS_REGION="other")

    assert (by_default.key_id, by_default.region) == ("of-default", "r-d")
    assert (named.key_id, named.secret, named.session_token, named.region) == ("of-work", "w", "t", "r-w")
    assert "profile 'work'" in named.source
    assert in_region.region == "other"


def test_files_of_profiles_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("[p]\naws_access_key_id = i\n")
    (tmp_path / "d").write_text("[profile p]\naws_secret_access_key = s\n")

    credentials = found(
        "s3://bucket",
        tmp_path,
        AWS_PROFILE="p",
        AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "c"),
        AWS_CONFIG_FILE=str(tmp_path / "d"),
    )

    assert (credentials.key_id, credentials.secret) == ("i", "s")


def test_keys_in_the_environment_count_more_than_profiles(tmp_path: Path) -> None:
    credentials = found(
        "s3://bucket", tmp_path, AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="s", AWS_PROFILE="missing"
    )

    assert credentials.key_id == "id"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "profile 'work' .* does not exist"),
        ("[work]\nregion = x\n", "profile 'work' .* has no keys"),
        (
            "[work]\nrole_arn = x\n",
            "by 'role_arn', which is not followed here; .*export-credentials --profile work",
        ),
        ("[work]\nsso_session = x\n", "by 'sso_session'"),
        ("s3cr3t\n", "is no file of profiles"),
        ("[work]\ns3cr3t\n", "is no file of profiles"),
    ],
)
def test_a_profile_without_keys_is_refused_and_nothing_of_its_file_is_shown(
    content: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(content)

    with pytest.raises(InvalidArg, match=complaint) as caught:
        found("s3://bucket", tmp_path, AWS_PROFILE="work")

    assert "s3cr3t" not in caught.value.message


def test_without_any_credentials_a_named_server_is_asked_anonymously(tmp_path: Path) -> None:
    assert found("s3://minio:9000/bucket", tmp_path).is_anonymous


def test_without_any_credentials_the_role_of_the_machine_is_tried(tmp_path: Path) -> None:
    credentials = found("s3://bucket", tmp_path)
    in_container = found("s3://bucket", tmp_path, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/x")

    assert credentials.may_be_anonymous
    assert not credentials.is_anonymous
    assert not in_container.may_be_anonymous


@pytest.mark.parametrize(
    ("root", "variable"),
    [
        ("s3://bucket", "AWS_SKIP_SIGNATURE"),
        ("gs://bucket", "GOOGLE_SKIP_SIGNATURE"),
        ("as://account/container", "AZURE_SKIP_SIGNATURE"),
    ],
)
def test_anonymous_access_can_be_asked_for(root: str, variable: str, tmp_path: Path) -> None:
    assert found(root, tmp_path, **{variable: "true"}).is_anonymous


def test_the_entry_with_the_longest_prefix_counts(tmp_path: Path) -> None:
    file = credential_file(
        tmp_path,
        {
            "s3": {
                "": {"key_id": "any", "secret_key": "s"},
                "s3://bucket": {
                    "key_id": "of-bucket",
                    "secret_key": "s",
                    "region": "r",
                    "session_token": "t",
                },
                "s3://bucket/deep": {"key_id": "of-deep", "secret_key": "s"},
            }
        },
    )
    environ = {"TRITON_CLOUD_CREDENTIAL_PATH": file, "AWS_ACCESS_KEY_ID": "not", "AWS_SESSION_TOKEN": "not"}

    of_bucket = found("s3://bucket/a", tmp_path, **environ)

    assert (of_bucket.key_id, of_bucket.region, of_bucket.session_token) == ("of-bucket", "r", "t")
    assert found("s3://bucket/deep/er", tmp_path, **environ).key_id == "of-deep"
    assert found("s3://other/a", tmp_path, **environ).key_id == "any"
    assert found("s3://other/a", tmp_path, **environ).session_token == ""
    assert '"s3://bucket"' in of_bucket.source


def test_an_entry_may_name_a_profile(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[p]\naws_access_key_id = i\naws_secret_access_key = s\n")
    file = credential_file(tmp_path, {"s3": {"": {"profile": "p", "key_id": "", "secret_key": ""}}})

    assert found("s3://bucket", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file).key_id == "i"


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "is no JSON: .* in line 1, column 2"),
        ('{"s3": {"": {"secret_key": "s3cr3t"', "is no JSON: .* in line 1"),
        ("[]", "holds a list, expected an object with the keys gs, s3 and as"),
        ({"s3": "s3cr3t"}, '"s3" is a string, expected an object with prefixes as keys'),
        ({"s3": {"": "s3cr3t"}}, '"": got a string, expected an object with secret_key, key_id'),
        ({"s3": {"": {"secret_key": 5}}}, '"secret_key": got a number, expected a string'),
        ({"s3": {"": {"secret_key": None}}}, '"secret_key": got null, expected a string'),
        ({"s3": {"": {"secret_key": "s3cr3t"}}}, "'secret_key' in .* is given without 'key_id'"),
        ({"s3": {"s3://other": {}}}, "cannot match credential for path s3://bucket: .* has no prefix of it"),
        ({}, "has no prefix of it under 's3'"),
    ],
)
def test_a_bad_credential_file_is_refused_with_its_name_and_key(
    document: object, complaint: str, tmp_path: Path
) -> None:
    file = credential_file(tmp_path, document)

    with pytest.raises(InvalidArg, match=complaint) as caught:
        found("s3://bucket", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file)

    assert file in caught.value.message
    assert "s3cr3t" not in caught.value.message


def test_a_credential_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArg, match=r"/nowhere .*TRITON_CLOUD_CREDENTIAL_PATH.* cannot be read: No such"
    ):
        found("s3://bucket", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH="/nowhere")


def test_a_misspelled_key_of_an_entry_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = credential_file(tmp_path, {"s3": {"": {"secretkey": "s3cr3t"}}})

    with caplog.at_level(logging.WARNING):
        found("s3://host:1/bucket", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file)

    assert "key 'secretkey' means nothing here; expected secret_key, key_id" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_google_is_asked_with_a_file(tmp_path: Path) -> None:
    account = tmp_path / "account.json"
    account.write_text("{}")
    file = credential_file(tmp_path, {"gs": {"gs://bucket": str(account)}})

    by_variable = found("gs://bucket", tmp_path, GOOGLE_APPLICATION_CREDENTIALS=str(account))
    by_entry = found("gs://bucket/a", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file)

    assert by_variable.path == by_entry.path == str(account)


def test_google_is_asked_with_the_credentials_of_the_user_of_gcloud(tmp_path: Path) -> None:
    own = tmp_path / ".config/gcloud/application_default_credentials.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")

    assert found("gs://bucket", tmp_path).path == str(own)


def test_a_missing_file_for_google_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArg, match="GOOGLE_APPLICATION_CREDENTIALS names '/nowhere', which is no file"):
        found("gs://bucket", tmp_path, GOOGLE_APPLICATION_CREDENTIALS="/nowhere")


def test_google_may_be_anonymous(tmp_path: Path) -> None:
    assert found("gs://bucket", tmp_path).may_be_anonymous


def test_azure_is_asked_with_the_key_of_the_account(tmp_path: Path) -> None:
    file = credential_file(tmp_path, {"as": {"as://account": {"account_str": "account", "account_key": KEY}}})

    by_variable = found(
        "as://account/container", tmp_path, AZURE_STORAGE_ACCOUNT="account", AZURE_STORAGE_KEY=KEY
    )
    by_entry = found("as://account/container", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file)

    assert by_variable.secret == by_entry.secret == KEY
    assert KEY not in repr(by_variable)


def test_azure_may_be_asked_with_an_identity(tmp_path: Path) -> None:
    by_variable = found(
        "as://account/container",
        tmp_path,
        AZURE_STORAGE_AUTH_TYPE="managed_identity",
        AZURE_STORAGE_CLIENT_ID="me",
    )
    file = credential_file(tmp_path, {"as": {"": {"auth_type": "default", "client_id": "me"}}})
    by_entry = found("as://account/container", tmp_path, TRITON_CLOUD_CREDENTIAL_PATH=file)

    assert (by_variable.auth_type, by_variable.client_id) == ("managed_identity", "me")
    assert (by_entry.auth_type, by_entry.client_id) == ("default", "me")


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        (
            {"AZURE_STORAGE_KEY": "s3cr3t!"},
            "AZURE_STORAGE_KEY is no key of a storage account; expected base64",
        ),
        ({"AZURE_STORAGE_ACCOUNT": "other"}, "AZURE_STORAGE_ACCOUNT is 'other', but .* lies in 'account'"),
        ({"AZURE_STORAGE_AUTH_TYPE": "x"}, "is 'x'; expected managed_identity or default"),
    ],
)
def test_credentials_of_azure_that_cannot_be_meant_are_refused(
    environ: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArg, match=complaint) as caught:
        found("as://account/container", tmp_path, **environ)

    assert "s3cr3t" not in caught.value.message


def test_azure_may_be_asked_with_a_signature_or_anonymously(tmp_path: Path) -> None:
    signed = found("as://account/container", tmp_path, AZURE_STORAGE_SAS_TOKEN="sv=1&sig=s3cr3t")

    assert signed.sas_token == "sv=1&sig=s3cr3t"
    assert "s3cr3t" not in repr(signed)
    assert found("as://account/container", tmp_path).is_anonymous
