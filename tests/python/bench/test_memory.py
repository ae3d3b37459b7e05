# SPDX-License-Identifier: MIT
"""Regions and the pattern that identifies a byte's place."""

from __future__ import annotations

import pytest

from mori._bench.memory import Blocks, Pattern, Region, available_bytes, resident_bytes


def filled(granule: int = 4096, count: int = 16) -> tuple[Pattern, Region]:
    pattern, region = Pattern(1, granule, count), Region(granule * count)
    pattern.fill(region, ((i * granule, i) for i in range(count)))
    return pattern, region


def everything(pattern: Pattern) -> list[tuple[int, int]]:
    return [(i * pattern.granule, i) for i in range(pattern.count)]


def test_a_new_region_is_present_zero_and_of_its_size() -> None:
    before = resident_bytes()
    region = Region(8 << 20)
    assert resident_bytes() - before > 7 << 20
    assert bytes(region.view) == bytes(8 << 20)


@pytest.mark.parametrize("size", [0, -1])
def test_a_region_without_bytes_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"got {size}"):
        Region(size)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 4097), (4096, 1), (0, -1)])
def test_a_range_outside_a_region_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="outside a region of 4096 bytes"):
        Region(4096).at(offset, size)


def test_a_filled_region_holds_the_pattern_of_any_other_process_with_the_seed() -> None:
    pattern, region = filled()
    assert Pattern(1, pattern.granule, pattern.count).wrong(region, everything(pattern)) == []
    assert len(Pattern(2, pattern.granule, pattern.count).wrong(region, everything(pattern))) == pattern.count


@pytest.mark.parametrize("place", [0, 1, 4095, 4096, 16 * 4096 - 1])
def test_one_flipped_bit_is_found(place: int) -> None:
    pattern, region = filled()
    region.view[place] ^= 1
    granule = place // pattern.granule
    assert pattern.wrong(region, everything(pattern)) == [(granule * pattern.granule, granule)]


def test_granules_in_each_others_place_are_found() -> None:
    pattern, region = filled()
    view, n = region.view, pattern.granule
    first, second = bytes(view[:n]), bytes(view[n : 2 * n])
    view[:n], view[n : 2 * n] = second, first
    assert pattern.wrong(region, everything(pattern)) == [(0, 0), (n, 1)]


def test_no_two_granules_are_equal() -> None:
    pattern = Pattern(1, 64, 5000)
    region = Region(5000 * 64)
    pattern.fill(region, everything(pattern))
    assert len({region.bytes(i * 64, 64) for i in range(5000)}) == 5000


def test_only_the_first_bytes_are_compared_if_asked_for() -> None:
    pattern, region = filled()
    region.view[5 * 4096 + 8] ^= 1
    assert pattern.wrong(region, everything(pattern), 8) == []
    assert pattern.wrong(region, everything(pattern), 9) == [(5 * 4096, 5)]


def test_blocks_hold_the_granules_that_they_should() -> None:
    region = Region(16 * 4096)
    blocks = Blocks(region.address, 4096, 16)
    blocks.fill()
    assert blocks.wrong(4096) == 0
    assert blocks.wrong(4096, {3: 3, 4: 5}) == 1
    blocks.wipe([0, 8192], 4096)
    assert blocks.wrong(4096) == 2
    blocks.wipe()
    assert blocks.wrong(8) == 16


def test_touched_names_the_granules_that_are_not_zero() -> None:
    pattern, region = Pattern(1, 64, 4), Region(256)
    region.view[130] = 9
    assert pattern.touched(region, [0, 64, 128, 192]) == [128]


def test_wipe_clears_a_range_and_nothing_else() -> None:
    _, region = filled()
    before = bytes(region.view)
    region.wipe(100, 50)
    assert bytes(region.view) == before[:100] + bytes(50) + before[150:]


def test_available_memory_is_known_here() -> None:
    assert available_bytes() > 0
