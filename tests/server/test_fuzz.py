"""The OpenAPI document is taken at its word: whatever it allows or forbids is asked for, and no answer is a fault."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks

from .driving import BASE, Place

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
def test_no_request_is_answered_with_a_fault(place: Place, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(place.get("/api/openapi.json").json())
    ids = sorted(place.ids().values())
    seen: dict[str, set[int]] = {}
    results: list[Any] = list(schema.get_all_operations())
    for result in results:
        operation = result.ok()

        @EXAMPLES
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            put_real_ids(case, ids)
            answer = sent(case, place)
            seen.setdefault(f"{case.method} {case.path}", set()).add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        try:
            ask()
        except Unsatisfiable:  # there is nothing that it forbids
            continue
    assert len(seen) > 20
    if mode is GenerationMode.POSITIVE:
        assert {200, 404} <= seen["GET /api/videos/{id}"]


def sent(case: Any, place: Place) -> Any:
    prepared: Any = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
    headers = {name: value for name, value in prepared.headers.items() if name.lower() != "content-length"}
    url, body = prepared.url or "", prepared.body
    return place.client.request(prepared.method or "GET", url, content=body, headers=headers)


def put_real_ids(case: Any, ids: list[str]) -> None:
    """Drawn ids name nothing: some become that of a video, unless it would be removed."""
    if case.method == "DELETE":
        return
    for given_, names in ((case.path_parameters, ["id"]), (case.query, ["a", "b"]), (case.body, ["id", "a", "b"])):
        if isinstance(given_, dict):
            for name in names:
                if isinstance(given_.get(name), str) and len(given_[name]) % 2:
                    given_[name] = ids[len(given_[name]) % len(ids)]
