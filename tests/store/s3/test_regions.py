"""Buckets in another region."""

from __future__ import annotations

import pytest

from lake_core.errors import AccessDenied, StoreError
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import QUICK, VERBS, assert_silent, methods
from tests.store.s3_server import S3Server

ELSEWHERE = {"x-amz-bucket-region": "eu-central-1"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("code", ["301 PermanentRedirect", "307 TemporaryRedirect", "400 AuthorizationHeaderMalformed"])
def test_bucket_in_another_region_is_named_with_the_option_to_set(
    store: S3Store, s3_endpoint: S3Server, code: str, verb: str
) -> None:
    s3_endpoint.fault("answer", method="", code=code, headers=ELSEWHERE, times=100)
    with pytest.raises(
        StoreError, match=r"'lake' is in the region eu-central-1, .* to us-east-1: set region='eu-central-1'"
    ) as caught:
        VERBS[verb][1](store)
    assert type(caught.value) is StoreError
    assert_silent(caught.value)


def test_region_is_asked_for_once_and_only_after_a_refusal(store: S3Store, s3_endpoint: S3Server) -> None:
    store.get("a")
    s3_endpoint.fault("answer", method="", code="301 PermanentRedirect", headers=ELSEWHERE, times=100)
    with pytest.raises(StoreError, match="eu-central-1"):
        store.get("a")
    assert methods(s3_endpoint) == ["GET 200", "GET 301", "HEAD 301"]


def test_region_in_the_answer_is_not_asked_for(store: S3Store, s3_endpoint: S3Server) -> None:
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>"
    s3_endpoint.fault("answer", method="GET", code="400 AuthorizationHeaderMalformed", body=body)
    with pytest.raises(StoreError, match="set region='eu-central-1'"):
        store.get("a")
    assert methods(s3_endpoint) == ["GET 400"]


def test_region_that_the_service_does_not_tell(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("answer", method="", code="301 PermanentRedirect", times=100)
    with pytest.raises(StoreError, match=r"'lake' with a redirect: it may be in another region\. Name its region"):
        store.get("a")


def test_malformed_credentials_are_no_matter_of_regions(store: S3Store, s3_endpoint: S3Server) -> None:
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>no key</Message><Region>us-east-1</Region></Error>"
    s3_endpoint.fault("answer", method="GET", code="400 AuthorizationHeaderMalformed", body=body)
    with pytest.raises(StoreError, match="with AuthorizationHeaderMalformed: no key"):
        store.get("a")


def test_region_is_asked_for_at_the_host_of_the_bucket() -> None:
    options: dict[str, object] = {"endpoint_url": "https://host:9000", "virtual_hosted_style_request": True}
    assert S3Store("lake", storage_options=options)._bucket_url() == "https://lake.host:9000"
    assert S3Store("lake", storage_options={"region": "eu-west-1"})._bucket_url() == (
        "https://s3.eu-west-1.amazonaws.com/lake"
    )


def test_refusal_behind_a_redirect_names_the_region(s3_endpoint: S3Server, s3_options: dict[str, object]) -> None:
    """The client follows a redirect to another host without a signature, which that host refuses."""

    class InTheCloud(S3Store):
        hosts = ("127.0.0.1",)

    store = InTheCloud("lake", "p", storage_options=s3_options, retry=QUICK)
    elsewhere = s3_endpoint.url.replace("127.0.0.1", "localhost") + "/lake/elsewhere"
    s3_endpoint.fault("answer", method="GET", key="elsewhere", code="403 AccessDenied", times=2)
    s3_endpoint.fault("answer", method="HEAD", code="403 AccessDenied", headers=ELSEWHERE, times=100)
    s3_endpoint.fault(
        "answer", method="", code="307 TemporaryRedirect", headers={**ELSEWHERE, "Location": elsewhere}, times=100
    )
    for _ in range(2):
        with pytest.raises(AccessDenied, match="'lake' is in the region eu-central-1"):
            store.get("a")
    with pytest.raises(StoreError, match="'lake' is in the region eu-central-1"):
        store.put("a", b"")
    assert methods(s3_endpoint) == ["GET 307", "GET 403", "HEAD 403", "GET 307", "GET 403", "PUT 307"]


def test_other_bad_requests_without_a_body_are_no_matter_of_regions(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("answer", method="HEAD", code="400 ExpiredToken", times=100)
    with pytest.raises(StoreError, match="refused a request for 'a': 400"):
        store.head("a")
