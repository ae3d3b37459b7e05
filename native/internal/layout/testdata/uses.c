// SPDX-License-Identifier: MIT
//
// Compiles with either header, unless PROTOTYPE is another one than the vendor's.

#ifndef OURS_H
#include "ours.h"
#endif

int use(struct same *s) { return s->call(s, (struct other **)0, SAME_LAST); }

#ifdef PROTOTYPE
PROTOTYPE;
#endif
