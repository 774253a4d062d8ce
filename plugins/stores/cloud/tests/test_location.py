from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_store_cloud.location import read_location


@pytest.mark.parametrize(
    ("root", "endpoint", "account", "bucket", "path"),
    [
        ("s3://bucket", "", "", "bucket", ""),
        ("s3://bucket/", "", "", "bucket", ""),
        ("s3://bucket/a/b/", "", "", "bucket", "a/b"),
        ("s3://bucket//a///b", "", "", "bucket", "a/b"),
        ("s3://my.bucket-2/a b", "", "", "my.bucket-2", "a b"),
        ("s3://minio:9000/bucket/a", "http://minio:9000", "", "bucket", "a"),
        ("s3://http://minio:9000/bucket/a", "http://minio:9000", "", "bucket", "a"),
        ("s3://https://minio.example:9000/bucket", "https://minio.example:9000", "", "bucket", ""),
        ("s3://https://minio.example/bucket/a", "https://minio.example", "", "bucket", "a"),
        ("s3://[::1]:9000/bucket/a", "http://[::1]:9000", "", "bucket", "a"),
        ("gs://bucket/a/b", "", "", "bucket", "a/b"),
        ("as://account/container/a/b", "", "account", "container", "a/b"),
        ("as://account/container", "", "account", "container", ""),
    ],
)
def test_roots_are_taken_apart(root: str, endpoint: str, account: str, bucket: str, path: str) -> None:
    location = read_location(root)

    assert (location.endpoint, location.account, location.bucket, location.path) == (
        endpoint,
        account,
        bucket,
        path,
    )
    assert location.root == root


@pytest.mark.parametrize(
    ("root", "complaint"),
    [
        ("s3://", "'' is no name of a bucket"),
        ("s3://host:9000", "'' is no name of a bucket"),
        ("s3://host:99999/bucket", "'host:99999' is no host:port"),
        ("s3://host:/bucket", "'host:' is no host:port"),
        ("s3://host:0/bucket", "'host:0' is no host:port"),
        ("s3://buck*et/a", "'buck\\*et' is no name of a bucket"),
        ("s3://bucket/a/../b", "must not have '.', '..'"),
        ("s3://bucket/a\0b", "control characters"),
        ("gs://", "expected gs://bucket/path"),
        ("as://account", "'' is no name of a container"),
        ("as://acc_ount/container", "'acc_ount' is no storage account"),
    ],
)
def test_roots_that_are_malformed_are_refused_with_the_form_they_should_have(
    root: str, complaint: str
) -> None:
    with pytest.raises(InvalidArg, match=complaint) as caught:
        read_location(root)

    assert f"expected {root[:2]}://" in caught.value.message
    assert "--model-repository" in caught.value.message


def test_the_same_repository_written_differently_is_the_same_place() -> None:
    assert read_location("s3://h:1/b/a/").place == read_location("s3://http://h:1/b//a").place
    assert read_location("s3://b/a").place != read_location("gs://b/a").place
    assert read_location("s3://b/a").place != read_location("s3://h:1/b/a").place


def test_a_repository_may_be_a_whole_bucket() -> None:
    assert read_location("s3://b").key_of("m") == "m"
    assert read_location("s3://b/a").key_of("m") == "a/m"
