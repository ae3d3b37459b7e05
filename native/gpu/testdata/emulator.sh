#!/bin/sh
# SPDX-License-Identifier: MIT
# Compile the emulated GPU, a libcuda.so.1 whose devices are host memory, and print the folder that it is in. What was compiled
# from the same sources with the same compilers is taken again. The folder is under build/ of the source tree, or under
# $TMPDIR where that cannot be written.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/../../.." && pwd)
cc=${CC:-gcc}

sources() {
	find "$root/native/gpu/testdata" -name 'fake*' -type f
	echo "$root/native/gpu/testdata/emulator.sh"
}

digest=$({ $cc --version; sources | sort | xargs cat; } | sha256sum | cut -c 1-16)
for base in "$root/build" "${TMPDIR:-/tmp}/mori-$(id -u)"; do
	if mkdir -p "$base/emulated-gpu" 2>/dev/null && [ -w "$base/emulated-gpu" ]; then
		break
	fi
done
out=$base/emulated-gpu/$digest
if [ ! -e "$out/libcuda.so.1" ]; then
	new=$(mktemp -d "$base/emulated-gpu/new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	$cc -std=gnu11 -O2 -g -Wall -Wextra -Werror -shared -fPIC -DFAKE_CUDA -Wl,-soname,libcuda.so.1 \
		-o "$new/libcuda.so.1" "$root/native/gpu/testdata/fake.c" -lpthread
	# Of several that compile at once, the first one wins; the others have the same.
	mv -T "$new" "$out" 2>/dev/null || [ -e "$out/libcuda.so.1" ]
fi
echo "$out"
