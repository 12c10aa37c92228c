"""One object as a replica shows it."""

import json

from pubsub_lib.core.objects import Object


def test_object_decodes_its_value_at_each_access() -> None:
    found: Object[dict[str, int]] = Object("port", "p1", "t", 3, b'{"a":1}', lambda each: json.loads(each.json))
    value = found.value
    assert value == {"a": 1}
    value["a"] = 2
    assert found.value == {"a": 1}
