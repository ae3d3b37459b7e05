// SPDX-License-Identifier: MIT
//
// Prints what the door says of the libibverbs.so.1 that it finds: one line if it cannot be used, else what it cannot do.

#include <stdio.h>

#include "../shim.h"

int main(void) {
	char why[VB_WHY] = "";
	uint64_t object = 0;
	uint32_t keys[2];
	struct vb_gid gid;
	int n = -1;
	if (vb_load(why, sizeof(why))) {
		printf("%s\n", why);
		return 0;
	}
	int rc = vb_devices(NULL, 0, &n);
	printf("devices %d, %d\n", rc, n);
	printf("open %d\n", vb_open("emu0", &object));
	printf("iova %d\n", vb_reg_mr(0, 4096, 1, 8192, 0, &object, keys));
	printf("dmabuf %d\n", vb_reg_dmabuf(0, 0, 1, 0, 0, 0, &object, keys));
	printf("table %d\n", vb_gid_table(0, &gid, 1, &n));
	return 0;
}
