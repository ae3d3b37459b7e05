# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# The guest's kernel and initramfs, in the cache. rdma-vm sources this file: prepare
# sets KDIR and INITRD. Uses CACHE, KERNEL_PKG, HERE, say, die and need.

# Loaded at boot, in this order, each after what it depends on. crc32 is what rxe
# asks the kernel's crypto API for by name, so that it is no recorded dependency.
readonly BOOT_MODULES=(virtio_pci 9pnet_virtio 9p overlay dummy virtio_net
	crc32_generic crc32_pclmul ib_uverbs rdma_ucm rdma_rxe)
# There for modprobe in the guest. What a kernel lacks is left out.
readonly EXTRA_MODULES=(veth bridge sch_netem libcrc32c crc32c_generic)
# Part of the cache's names, so that other modules make another cache entry.
RECIPE=$(echo "${BOOT_MODULES[@]}" / "${EXTRA_MODULES[@]}" | sha256sum | cut -c1-8)
readonly RECIPE
SCRATCH=()

# Fills the cache; "fresh" looks for a newer kernel than the one that is there.
prepare() {
	local lock
	mkdir -p "$CACHE"
	exec {lock}>"$CACHE/lock"
	flock "$lock"
	prepare_kernel "$@"
	prepare_initramfs
	exec {lock}>&-
}

scratch() { # sets TMP
	TMP=$(mktemp -d "$CACHE/tmp.XXXXXX")
	SCRATCH+=("$TMP")
}

# The package that the metapackage stands for, with its version: "NAME VERSION".
resolve_kernel() {
	local name
	name=$(apt-cache depends "$KERNEL_PKG" 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }')
	name=${name:-$KERNEL_PKG}
	apt-cache show "$name" 2>/dev/null | awk -v n="$name" '$1 == "Version:" { print n, $2; exit }'
}

# Fills $CACHE/kernel-VERSION; sets KDIR.
prepare_kernel() {
	local resolved name version
	# Offline, or without package lists, whatever is cached for this package will do.
	if [ -L "$CACHE/$KERNEL_PKG-$RECIPE" ] && [ "${1:-}" != fresh ]; then
		KDIR=$(readlink -f "$CACHE/$KERNEL_PKG-$RECIPE")
		[ -s "$KDIR/complete" ] && return
	fi
	resolved=$(resolve_kernel)
	[ -n "$resolved" ] || die "$EX_INFRA" "no package $KERNEL_PKG: run 'apt-get update' first"
	read -r name version <<<"$resolved"
	KDIR=$CACHE/kernel-$name-$version-$RECIPE
	[ -s "$KDIR/complete" ] || fetch_kernel "$name" "$version"
	ln -sfn "${KDIR##*/}" "$CACHE/$KERNEL_PKG-$RECIPE"
}

fetch_kernel() {
	local name=$1 version=$2 image tree
	need busybox
	say "fetching $name $version"
	scratch
	(cd "$TMP" && apt-get -qq -o APT::Sandbox::User=root download "$name=$version" >&2) ||
		die "$EX_INFRA" "cannot download $name $version: run 'apt-get update', or look at the network"
	mkdir "$TMP/x" "$TMP/k" "$TMP/k/modules"
	# Only what may be used: the rest is most of its 400 MB.
	dpkg-deb --fsys-tarfile "$TMP"/*.deb | tar -C "$TMP/x" -x --wildcards --no-anchored \
		'boot/vmlinuz-*' 'modules/*/kernel/crypto/*' 'modules/*/kernel/arch/*' 'modules/*/kernel/lib/*' \
		'modules/*/kernel/fs/*' 'modules/*/kernel/net/*' 'modules/*/kernel/drivers/infiniband/*' \
		'modules/*/kernel/drivers/virtio/*' 'modules/*/kernel/drivers/net/*.ko*'
	image=$(echo "$TMP"/x/boot/vmlinuz-*)
	printf '%s\n' "${image##*/vmlinuz-}" >"$TMP/k/release"
	extract_vmlinux "$image" "$TMP/k/vmlinux" || mv "$image" "$TMP/k/vmlinux"
	# tar keeps the usr-merge layout of the package, whichever it is.
	tree=$(find "$TMP/x" -type d -path '*/modules/*/kernel' | head -n 1)
	collect_modules "$tree" "$TMP/k/modules" "${BOOT_MODULES[@]}" >"$TMP/k/boot-modules"
	collect_modules "$tree" "$TMP/k/modules" "${EXTRA_MODULES[@]}" >/dev/null
	grep -qx rdma_rxe.ko "$TMP/k/boot-modules" || die "$EX_INFRA" "$name has no rdma_rxe module"
	printf '%s %s\n' "$name" "$version" >"$TMP/k/complete"
	rm -rf "$KDIR"
	mv "$TMP/k" "$KDIR"
	rm -rf "$TMP"
}

# vmlinuz -> vmlinux, so that the guest need not decompress it: emulated, that
# is a third of the boot. Offsets: the kernel's Documentation/arch/x86/boot.rst.
extract_vmlinux() {
	local image=$1 out=$2 setup offset length magic unpack
	setup=$(od -An -tu1 -j497 -N1 "$image" | tr -d ' ')
	offset=$(od -An -tu4 -j584 -N4 "$image" | tr -d ' ')
	length=$(od -An -tu4 -j588 -N4 "$image" | tr -d ' ')
	offset=$((((setup ? setup : 4) + 1) * 512 + offset))
	magic=$(od -An -tx1 -j"$offset" -N4 "$image" | tr -d ' ')
	case $magic in
	fd377a58) unpack="xz -dc" ;;
	28b52ffd) unpack="zstd -dc" ;;
	*) return 1 ;;
	esac
	# The payload ends with its unpacked size, which the tools call garbage.
	tail -c +$((offset + 1)) "$image" | head -c $((length)) | $unpack >"$out" 2>/dev/null || true
	[ "$(od -An -tx1 -N4 "$out" | tr -d ' ')" = 7f454c46 ]
}

# Copies the modules named, and all that they depend on, from TREE to OUT, and
# prints their file names in loading order. Reads each one's own "depends=".
collect_modules() {
	local tree=$1 out=$2 name
	shift 2
	declare -A path=() seen=()
	while IFS= read -r name; do
		local key=${name##*/}
		key=${key%%.ko*}
		path[${key//-/_}]=$name
	done < <(find "$tree" -name '*.ko*')
	visit() {
		local key=${1//-/_} file dep deps
		[ -z "${seen[$key]:-}" ] || return 0
		seen[$key]=1
		file=${path[$key]:-}
		[ -n "$file" ] || return 0 # built in, or not in this kernel
		case $file in
		*.xz) xz -dc "$file" >"$out/$key.ko" ;;
		*.zst) zstd -qdc "$file" >"$out/$key.ko" ;;
		*) cp "$file" "$out/$key.ko" ;;
		esac
		deps=$(tr '\0' '\n' <"$out/$key.ko" | LC_ALL=C sed -n 's/^depends=//p' | head -n 1)
		for dep in ${deps//,/ }; do visit "$dep"; done
		printf '%s.ko\n' "$key"
	}
	for name; do visit "$name"; done
}

# Built beside the kernel, once for each version of what goes into it; sets INITRD.
prepare_initramfs() {
	local sum applet release busybox
	busybox=$(command -v busybox) || die "$EX_INFRA" "busybox is missing; run: $PROG deps"
	sum=$(cat "$HERE"/guest/* "$busybox" "$KDIR"/modules/*.ko "$KDIR/boot-modules" | sha256sum | cut -c1-16)
	INITRD=$KDIR/initrd-$sum
	[ ! -s "$INITRD" ] || return 0
	release=$(cat "$KDIR/release")
	scratch
	mkdir -p "$TMP"/{bin,proc,sys,dev,job,lower,rw,new,"lib/modules/$release"}
	cp "$busybox" "$TMP/bin/busybox"
	for applet in sh mount mkdir insmod cp switch_root poweroff; do ln -s busybox "$TMP/bin/$applet"; done
	cp "$KDIR"/modules/*.ko "$KDIR/boot-modules" "$TMP/lib/modules/$release/"
	busybox depmod -b "$TMP" "$release"
	install -m 755 "$HERE/guest/init" "$TMP/init"
	install -m 755 "$HERE/guest/main" "$TMP/main"
	(cd "$TMP" && find . | LC_ALL=C sort | busybox cpio -o -H newc 2>/dev/null) >"$TMP.initrd"
	mv "$TMP.initrd" "$INITRD"
	rm -rf "$TMP"
}
