# SPDX-License-Identifier: MIT
"""mori.ops on GPUs, real or emulated, of ranks that are on several hosts, against the reference, and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_op import new_op
from test_property import cases, check, check_sums

from mori._errors import UnsupportedError
from ranks import Rank, Ranks

pytestmark = pytest.mark.timeout(300)
BETWEEN = ("InterNode", "InterNodeV1", "InterNodeV1LL", "AsyncLL")
few = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("kernel", BETWEEN)
@few
@given(data=st.data())
def test_dispatch_and_combine(gpu_ranks: Ranks, kernel: str, data: st.DataObject) -> None:
    _check(gpu_ranks, kernel, data)


@pytest.mark.parametrize("kernel", BETWEEN)
@few
@given(data=st.data())
def test_by_a_nic(gpu_nic_ranks: Ranks, kernel: str, data: st.DataObject) -> None:
    _check(gpu_nic_ranks, kernel, data)


def _check(ranks: Ranks, kernel: str, data: st.DataObject) -> None:
    case = data.draw(cases(2, kind="gpu", kernel=kernel, split=kernel == "AsyncLL"))
    case.way = replace(case.way, replay=case.way.replay and kernel == "InterNodeV1")
    check(ranks, case, hosts=2)


@pytest.mark.parametrize("kernel", ["InterNodeV1", "InterNodeV1LL"])
@settings(few, max_examples=3)
@given(data=st.data())
def test_hosts_sum(gpu_ranks: Ranks, kernel: str, data: st.DataObject) -> None:
    case = data.draw(cases(4, kind="gpu", kernel=kernel, split=False, replay=False))
    summed = case.way.output in ("float32", "bfloat16")
    check(gpu_ranks, case, partial(check_sums, per_host=2 if summed else None), hosts=2, blocks=True)


def _refusals(rank: Rank) -> None:
    with pytest.raises(UnsupportedError, match="kernel_type IntraNode needs mapped memory"):
        new_op(rank)
    op = new_op(rank, kernel="InterNode")
    with pytest.raises(UnsupportedError, match="ranks on several hosts"):
        op.exclude([1 - rank.me])
    op.close()


def test_what_there_is_not_between_hosts(gpu_ranks: Ranks) -> None:
    gpu_ranks.world(2, hosts=2).run(_refusals)
