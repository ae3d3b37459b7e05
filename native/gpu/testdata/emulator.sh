#!/bin/sh
# SPDX-License-Identifier: MIT
# Compile the emulated GPU, a libcuda.so.1 whose devices are host memory, and print the folder that it is in. What was compiled
# from the same sources with the same compilers is taken again. The folder is under build/ of the source tree, or under
# $TMPDIR where that cannot be written.
#
# Its kernels are those of all sources in native/kernels (and of its testdata, which tests have as modules of users'), in
# native/examples and in examples/gpu, as they are built for the CPU: what begins a line with  extern "C" MORI_DEVICE_KERNEL(threads) void name(
# is one. Those of native/kernels/nic are in fake_nic.cpp. The functions of shmem/library.cpp can be launched, too.
#
#     emulator.sh            libcuda.so.1
#     emulator.sh hip        libamdhip64.so.6 instead
#     emulator.sh cuda FLAG  with FLAG for both compilers, such as -fsanitize=thread
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/../../.." && pwd)
data=$root/native/gpu/testdata
vendor=${1:-cuda}
flag=${2:-}
cc=${CC:-gcc}
cxx=${CXX:-g++}
cores=$(nproc 2>/dev/null || echo 1)

sources() {
	find "$data" -name 'fake*' -type f
	find "$root/native/include" "$root/native/kernels" "$root/native/examples" -name '*.[ch]pp' -type f
	find "$root/examples/gpu" -name '*.cu' -type f
	echo "$data/emulator.sh"
}

kernels() {
	grep -rlE --include='*.cpp' --include='*.cu' '^extern "C" MORI_DEVICE_KERNEL\(' "$root/native/kernels" "$root/native/examples" "$root/examples/gpu" "$data/fake_nic.cpp" | sort
}

# One source, and at its end the names of its kernels.
registered() {
	echo '#define MORI_ONLY_KERNELS' # programs leave out what is the host's
	echo "#include \"$1\""
	echo '#include "fake_table.hpp"'
	sed -nE 's/^extern "C" MORI_DEVICE_KERNEL\((.*)\) void ([a-zA-Z0-9_]+)\(.*/MORI_FAKE_KERNEL(\2, \1)/p' "$1"
}

library() {
	echo "#include \"$root/native/kernels/shmem/library.cpp\""
	echo '#include "fake_table.hpp"'
	$cxx -std=c++17 -E -P -I"$root/native/include" "$root/native/kernels/shmem/library.cpp" | grep -oE 'extern "C" [a-z0-9_]+ mori_shmem_[a-z0-9_]+\(' |
		sed -E 's/.* ([a-z0-9_]+)\(/MORI_FAKE_KERNEL(\1, 1024)/' | grep -v mori_shmem_remote | sort -u
}

digest() { { echo "$flag"; $cc --version; $cxx --version; sources | sort | xargs cat; } | sha256sum | cut -c 1-16; }

compile() {
	$cxx -std=c++17 -O1 -g1 -w -fPIC -fvisibility=hidden $flag -include "$data/fake_trap.h" -I"$root/native/include" -I"$data" \
		-c -o "$1.o" "$1"
}

# A kernel that does not compile is for its own tests to find; a test that launches it here is told that it is missing.
optional() {
	compile "$1" 2>"$1.log" || { echo "the emulated GPU is without $2:" && head -5 "$1.log"; } >&2
}

# All kernels as kernels.o in a folder, on all cores.
compile_kernels() {
	cp "$data/fake_kernels.cpp" "$1/run.cpp"
	compile "$1/run.cpp"
	library >"$1/library.cpp"
	optional "$1/library.cpp" "$root/native/kernels/shmem/library.cpp" &
	n=1
	for source in $(kernels); do
		[ $((n % cores)) -ne 0 ] || wait
		n=$((n + 1))
		registered "$source" >"$1/kernel$n.cpp"
		optional "$1/kernel$n.cpp" "$source" &
	done
	wait
	$cxx $flag -nostdlib -r -o "$1/kernels" "$1"/*.o
	rm -f "$1"/*.o "$1"/*.cpp "$1"/*.log
	mv "$1/kernels" "$1/kernels.o"
}

# Without flock several may compile at once: the first one wins, and the others have the same.
publish() {
	chmod 755 "$1"
	mv -T "$1" "$2" 2>/dev/null || [ -e "$2" ]
}

for base in "$root/build" "${TMPDIR:-/tmp}/mori-$(id -u)"; do
	if mkdir -p "$base/emulated-gpu" 2>/dev/null && [ -w "$base/emulated-gpu" ]; then
		break
	fi
done
before=$(digest)
# The kernels are the same for both vendors.
objects=$base/emulated-gpu/$before
out=$objects-$vendor
# Of several that want it at once, one compiles and the others wait for it.
if [ ! -e "$out" ] && command -v flock >/dev/null; then
	exec 9>"$objects.lock"
	flock -w 240 9 || echo "the emulated GPU is compiled elsewhere for 240 s: here, too" >&2
fi
if [ ! -e "$out" ]; then
	case $vendor in
	cuda) name=libcuda.so.1 define=FAKE_CUDA ;;
	hip) name=libamdhip64.so.6 define=FAKE_HIP=6 ;;
	esac
	new=$(mktemp -d "$base/emulated-gpu/new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	$cc -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden $flag -D$define -c -o "$new/fake.o" "$data/fake.c"
	if [ ! -e "$objects" ]; then
		mkdir "$new/kernels"
		compile_kernels "$new/kernels"
		publish "$new/kernels" "$objects"
	fi
	$cxx $flag -shared -Wl,-soname,$name -o "$new/$name" "$new/fake.o" "$objects/kernels.o" -lpthread
	rm -rf "$new/fake.o" "$new/kernels"
	find "$base/emulated-gpu" -mindepth 1 -maxdepth 1 -mtime +2 -exec rm -rf {} +
	if [ "$(digest)" != "$before" ]; then
		echo "the sources of the emulated GPU changed while it was compiled: again" >&2
		rm -rf "$new" "$objects"
		exec sh "$0" "$@"
	fi
	publish "$new" "$out"
fi
echo "$out"
