// SPDX-License-Identifier: MIT

// Operands of mori.shmem: addresses, arrays and tensors, and their element types.
#pragma once
#include "fast_py.h"
#include "fast_shmem.h"

// An element type: its size in bytes, and its number in core/fabric, 0 for bytes that are only
// moved.
typedef struct {
	int number, size;
} element;

enum { ELEMENT_SHIFT = 8, FIRST_FLOAT = 9, LAST_FLOAT = 10 };

static inline int element_is_float(element t) { return t.number >= FIRST_FLOAT && t.number <= LAST_FLOAT; }
static inline int element_is_signed(element t) { return t.number & 1; } // of integers

// A range of memory. It holds a reference to its Python object until operand_release.
typedef struct {
	uint64_t addr, bytes; // bytes: UINT64_MAX for a bare address
	element type;         // size 0: none
	PyObject *owner;      // borrowed reference; NULL for a bare address
	Py_buffer view;
	int has_view;
	const char *name;
} operand;

// All return 0, or -1 with the Python error set.
int mori_element(PyObject *dtype, element *out);                           // None: size 0
int mori_operand(PyObject *o, int writes, const char *name, operand *out); // NULL and None are rejected
void mori_operand_release(operand *x);
int mori_pack(PyObject *value, element t, uint64_t *bits);  // converts a number to the low bits of a word
PyObject *mori_unpack(uint64_t bits, element t);
int mori_refuse(const char *format, ...);                   // raises InvalidArgumentError; always -1

// mori_agree determines the element type of a call from dtype and its operands. b may be NULL.
int mori_agree(PyObject *dtype, const operand *a, const operand *b, element *out);

// mori_room returns an error unless n elements, stride apart, fit into an operand.
int mori_room(const operand *x, uint64_t n, int64_t stride, element t);

PyObject *mori_shmem_setup(PyObject *self, PyObject *args);
