#!/bin/sh
# SPDX-License-Identifier: MIT
# Compile the emulated libibverbs.so.1, whose devices are sockets and threads, and print the folder that it is in. What was compiled from the
# same sources with the same compiler is taken again. The folder is under build/ of the source tree, or under $TMPDIR where
# that cannot be written.
#
#     emulator.sh        libibverbs.so.1
#     emulator.sh FLAG   and with it the program stress, both compiled with FLAG, such as -fsanitize=thread
set -eu
export LC_ALL=C
data=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$data/../../../.." && pwd)
flag=${1:-}
cxx=${CXX:-g++}

digest() { { echo "$flag"; $cxx --version; cat "$data"/* "$data/../../abi.h"; } | sha256sum | cut -c 1-16; }

for base in "$root/build" "${TMPDIR:-/tmp}/mori-$(id -u)"; do
	if mkdir -p "$base/emulated-verbs" 2>/dev/null && [ -w "$base/emulated-verbs" ]; then
		break
	fi
done
before=$(digest)
out=$base/emulated-verbs/$before
# Of several that want it at once, one compiles and the others wait for it.
if [ ! -e "$out" ] && command -v flock >/dev/null; then
	exec 9>"$out.lock"
	flock -w 240 9 || echo "the emulated libibverbs is compiled elsewhere for 240 s: here, too" >&2
fi
if [ ! -e "$out" ]; then
	new=$(mktemp -d "$base/emulated-verbs/new-XXXXXX")
	trap 'rm -rf "$new"' EXIT
	flags="-std=c++17 -O1 -g1 -Wall -Wextra -Werror -fPIC $flag"
	# All are compiled as one: most of the time goes into the headers.
	for source in link steer device memory queue pair requester responder worker words; do
		echo "#include \"$data/$source.cpp\""
	done >"$new/all.cpp"
	$cxx $flags -shared -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$data/exports.map" -o "$new/libibverbs.so.1" "$new/all.cpp" -lpthread
	if [ -n "$flag" ]; then
		$cxx $flags -o "$new/stress" "$data/stress.cpp" "$new/libibverbs.so.1" -Wl,-rpath,'$ORIGIN' -lpthread
	fi
	rm "$new/all.cpp"
	chmod 755 "$new"
	find "$base/emulated-verbs" -mindepth 1 -maxdepth 1 -mtime +2 -exec rm -rf {} +
	if [ "$(digest)" != "$before" ]; then
		echo "the sources of the emulated libibverbs changed while it was compiled: again" >&2
		rm -rf "$new"
		exec sh "$0" "$@"
	fi
	# Without flock several may compile at once: the first one wins, and the others have the same.
	mv -T "$new" "$out" 2>/dev/null || [ -e "$out" ]
fi
echo "$out"
