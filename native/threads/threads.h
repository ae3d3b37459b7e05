// SPDX-License-Identifier: MIT

#pragma once

// Starts threads that do nothing, up to wanted at once, and ends them. Returns how many the system
// gave; *cause is the errno that it refused the next one with, 0 if it gave all.
int mori_threads_probe(int wanted, int *cause);
