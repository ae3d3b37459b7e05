# SPDX-License-Identifier: MIT
"""The names of mori.ops, and what its enums and its configuration are: all that needs no ranks."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import pytest

import mori.ops
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineKernelType, EpDispatchCombineOp, dispatch_combine
from mori.ops.dispatch_combine import EpDispatchCombineQuantType, EpDispatchRoutingHandle
from support import need_torch, run_script

REQUIRED = [
    "data_type", "rank", "world_size", "hidden_dim", "scale_dim", "scale_type_size", "max_token_type_size",
    "max_num_inp_token_per_rank", "num_experts_per_rank", "num_experts_per_token",
]  # fmt: skip
DEFAULTS = {
    "warp_num_per_block": 8,
    "block_num": 80,
    "max_total_recv_tokens": 0,
    "use_external_inp_buf": True,
    "kernel_type": EpDispatchCombineKernelType.IntraNode,
    "gpu_per_node": 8,
    "rdma_block_num": 0,
    "num_qp_per_pe": 1,
    "quant_type": "none",
}
KERNELS = {"IntraNode": 0, "InterNode": 1, "InterNodeV1": 2, "InterNodeV1LL": 3, "AsyncLL": 4, "IntraNodeLL": 5}
QUANT_NAMES = ("none", "fp8_direct_cast", "fp8_blockwise", "fp4_blockwise")


def config(**changes: Any) -> EpDispatchCombineConfig:
    fields = dict(zip(REQUIRED, ("float32", 0, 1, 8, 0, 0, 4, 4, 2, 2), strict=True))
    return EpDispatchCombineConfig(**{**fields, **changes})


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "EpDispatchCombineKernelType",
            "EpDispatchCombineConfig",
            "EpDispatchCombineOp",
            "launch_local_expert_count",
            "dispatch_combine",
        ],
    )
    def test_the_package_has(self, name: str) -> None:
        assert hasattr(mori.ops, name)

    @pytest.mark.parametrize(
        "name",
        [
            "EpDispatchCombineKernelType",
            "EpDispatchCombineQuantType",
            "EpDispatchCombineConfig",
            "EpDispatchCombineOp",
            "EpDispatchRoutingHandle",
            "warmup_jit_kernels",
            "_QUANT_TYPE_MAP",
            "_normalize_quant_type",
        ],
    )
    def test_the_module_has(self, name: str) -> None:
        assert hasattr(dispatch_combine, name)

    def test_both_have_the_same_classes(self) -> None:
        assert dispatch_combine.EpDispatchCombineOp is EpDispatchCombineOp
        assert dispatch_combine.EpDispatchCombineConfig is EpDispatchCombineConfig

    def test_top_k_indices_are_int32(self) -> None:
        need_torch()
        import torch

        assert dispatch_combine.TOPK_IDX_DTYPE is torch.int32

    def test_kernels_need_no_warming_up(self) -> None:
        assert dispatch_combine.warmup_jit_kernels(EpDispatchCombineKernelType.IntraNode) is None

    def test_importing_loads_no_torch_and_starts_nothing(self) -> None:
        run_script("""
import sys
sys.modules["torch"] = None
import mori.ops, mori.ops.dispatch_combine, mori._core
assert not mori._core.loaded()
""")

    def test_the_second_version_of_the_api_says_that_it_is_not_here(self) -> None:
        with pytest.raises((ImportError, NotImplementedError), match="dispatch_combine_v2"):
            importlib.import_module("mori.ops.dispatch_combine_v2").EpDispatchCombineOp  # noqa: B018
        with pytest.raises(AttributeError):
            mori.ops.no_such_name  # noqa: B018


class TestEnums:
    @pytest.mark.parametrize(("name", "value"), KERNELS.items())
    def test_a_kernel_type_is_its_number(self, name: str, value: int) -> None:
        member = EpDispatchCombineKernelType[name] if hasattr(EpDispatchCombineKernelType, "__getitem__") else None
        assert member is getattr(EpDispatchCombineKernelType, name)
        assert (int(member), member.value, member.name) == (value, value, name)
        assert member == value
        assert EpDispatchCombineKernelType(value) is member
        assert {member: "found"}[getattr(EpDispatchCombineKernelType, name)] == "found"
        assert name in str(member)

    def test_kernel_types_differ(self) -> None:
        assert len({getattr(EpDispatchCombineKernelType, name) for name in KERNELS}) == 6
        assert EpDispatchCombineKernelType.AsyncLL != EpDispatchCombineKernelType.IntraNode

    def test_quant_types_are_their_numbers(self) -> None:
        names = ("None_", "Fp8DirectCast", "Fp8BlockwiseQuant", "Fp4BlockwiseQuant")
        assert [int(getattr(EpDispatchCombineQuantType, name)) for name in names] == [0, 1, 2, 3]

    def test_quant_types_have_names_in_a_configuration(self) -> None:
        assert [int(dispatch_combine._QUANT_TYPE_MAP[name]) for name in QUANT_NAMES] == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        "given", ["fp8_blockwise", " FP8_Blockwise\n", EpDispatchCombineQuantType.Fp8BlockwiseQuant]
    )
    def test_case_and_space_around_a_quant_type_do_not_matter_and_members_are_taken(self, given: Any) -> None:
        assert dispatch_combine._normalize_quant_type(given) == EpDispatchCombineQuantType.Fp8BlockwiseQuant

    @pytest.mark.parametrize("given", ["fp9", "", "fp8", None, 1.5])
    def test_any_other_quant_type_is_refused_by_name(self, given: Any) -> None:
        with pytest.raises(ValueError, match="fp8_direct_cast"):
            dispatch_combine._normalize_quant_type(given)


class TestConfig:
    def test_fields_are_those_that_clients_look_for_in_this_order(self) -> None:
        fields = dataclasses.fields(EpDispatchCombineConfig)
        assert [f.name for f in fields] == [*REQUIRED, *DEFAULTS]

    def test_defaults(self) -> None:
        fields = {f.name: f.default for f in dataclasses.fields(EpDispatchCombineConfig)}
        assert {name: fields[name] for name in DEFAULTS} == DEFAULTS
        assert all(fields[name] is dataclasses.MISSING for name in REQUIRED)

    def test_fields_may_be_given_by_position(self) -> None:
        made = EpDispatchCombineConfig("float32", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, False)
        assert dataclasses.astuple(made)[:14] == ("float32", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, False)

    def test_a_missing_field_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="num_experts_per_token"):
            EpDispatchCombineConfig("float32", 0, 1, 8, 0, 0, 4, 4, 2)

    def test_unknown_arguments_can_be_dropped_as_sglang_does(self) -> None:
        given = {**dict.fromkeys(REQUIRED, 1), "data_type": "float32", "rank": 0, "not_a_field": 1}
        known = {f.name for f in dataclasses.fields(EpDispatchCombineConfig)}
        assert EpDispatchCombineConfig(**{k: v for k, v in given.items() if k in known}).hidden_dim == 1

    def test_fields_can_be_changed_and_compared(self) -> None:
        changed = dataclasses.replace(config(), block_num=3)
        assert changed != config()
        changed.block_num = 80
        assert changed == config()


class TestWithoutShmem:
    def test_an_op_needs_shmem(self) -> None:
        run_script("""
from mori.ops import EpDispatchCombineConfig, EpDispatchCombineOp
try:
    EpDispatchCombineOp(EpDispatchCombineConfig("float32", 0, 1, 8, 0, 0, 4, 4, 2, 2))
except RuntimeError as err:
    assert "shmem" in str(err), err
else:
    raise SystemExit("an op was made without shmem")
""")


class TestRoutingHandle:
    FIELDS = (
        "disp_dest_tok_id_map",
        "inter_node_disp_dest_tok_id_map",
        "inter_node_disp_send_map",
        "total_recv_token_num",
        "disp_tok_id_to_src_tok_id_local",
    )

    def test_it_is_a_dataclass_of_five_tensors_and_a_number_of_tokens(self) -> None:
        assert [f.name for f in dataclasses.fields(EpDispatchRoutingHandle)] == [*self.FIELDS, "cur_rank_num_token"]

    def test_its_tensors_can_be_kept_and_put_back(self) -> None:
        parts = tuple(f"tensor {n}" for n in range(5))
        handle = EpDispatchRoutingHandle.from_tensors(parts, cur_rank_num_token=7)
        assert handle.tensors() == parts
        assert [getattr(handle, name) for name in self.FIELDS] == list(parts)
        assert handle.cur_rank_num_token == 7
        assert EpDispatchRoutingHandle.from_tensors(parts).cur_rank_num_token == 0
