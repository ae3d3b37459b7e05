# SPDX-License-Identifier: MIT
"""Enums: values, conversions, and the equality rules that clients lean on."""

from __future__ import annotations

import copy
import operator
import pickle

import pytest

from mori.io import BackendType, MemoryLocationType, PollCqMode, StatusCode

MEMBERS = {
    BackendType: {"Unknown": 0, "XGMI": 1, "RDMA": 2, "TCP": 3, "FABRIC": 4},
    MemoryLocationType: {"Unknown": 0, "CPU": 1, "GPU": 2},
    StatusCode: {
        "SUCCESS": 0,
        "INIT": 1,
        "IN_PROGRESS": 2,
        "ERR_INVALID_ARGS": 11,
        "ERR_NOT_FOUND": 12,
        "ERR_RDMA_OP": 13,
        "ERR_BAD_STATE": 14,
        "ERR_GPU_OP": 15,
        "ERR_BAD_ADDRESS": 16,
    },
    PollCqMode: {"POLLING": 0, "EVENT": 1},
}
EACH = [member for kind in MEMBERS for member in kind]


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_members_and_values(kind: type) -> None:
    assert {name: member.value for name, member in kind.__members__.items()} == MEMBERS[kind]


@pytest.mark.parametrize("member", EACH, ids=str)
class TestEachMember:
    def test_text(self, member: StatusCode) -> None:
        name = f"{type(member).__name__}.{member.name}"
        assert str(member) == f"{member}" == name
        assert repr(member) == f"<{name}: {member.value}>"

    def test_integer(self, member: StatusCode) -> None:
        assert int(member) == operator.index(member) == hash(member) == member.value
        assert [*range(20)][member] == member.value

    def test_from_integer(self, member: StatusCode) -> None:
        assert type(member)(member.value) == member

    def test_equality_is_strict(self, member: StatusCode) -> None:
        assert member == getattr(type(member), member.name)
        assert (member == member.value) is False
        assert (member != member.value) is True

    def test_no_order(self, member: StatusCode) -> None:
        with pytest.raises(TypeError):
            _ = member < member

    def test_copies(self, member: StatusCode) -> None:
        assert pickle.loads(pickle.dumps(member)) == member
        assert copy.deepcopy(member) == member

    def test_attribute_identity(self, member: StatusCode) -> None:
        assert getattr(type(member), member.name) is getattr(type(member), member.name)


def test_members_of_two_enums_differ() -> None:
    assert BackendType.XGMI != MemoryLocationType.CPU
    assert StatusCode.SUCCESS != PollCqMode.POLLING


@pytest.mark.parametrize("value", [10, 17, -1])
def test_status_code_out_of_range(value: int) -> None:
    with pytest.raises(ValueError):
        StatusCode(value)
