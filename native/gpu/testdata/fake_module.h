// SPDX-License-Identifier: MIT
//
// Modules, what is in them, and launches. A module's text is PTX or an AMD code object; of it only the names count: what they
// run is the CPU build of the kernel of that name, and a variable is memory of the module. "fake" is a module too, with the kernel
// fill and the variable state, and "old" is one for a newer driver. Part of fake.c.

struct code {
	char *image;
	size_t n;
	int dev;
};

struct function {
	struct code *code;
	const struct fake_kernel *kernel; // NULL: fill
	uint64_t module;
};

// image_size is the length of an image: a text's, or up to the end of an ELF file's table of sections, which is its last part.
static size_t image_size(const char *image) {
	Elf64_Ehdr e;
	if (memcmp(image, ELFMAG, SELFMAG))
		return strlen(image);
	memcpy(&e, image, sizeof(e));
	return e.e_shoff + (size_t)e.e_shentsize * e.e_shnum;
}

static int is_elf(const struct code *c) { return !memcmp(c->image, ELFMAG, SELFMAG); }

static int is_fake(const struct code *c) { return !strncmp(c->image, "fake", 4); }

static int known(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$'; }

// mention finds a name in an image as a word of its own, from a place on.
static const char *mention(const struct code *c, const char *from, const char *name) {
	size_t len = strlen(name);
	for (const char *end = c->image + c->n, *p = from; p && p < end; p++) {
		p = memmem(p, (size_t)(end - p), name, len);
		if (!p || ((p == c->image || !known(p[-1])) && !known(p[len])))
			return p;
	}
	return NULL;
}

// declared finds where PTX declares a name after a word of its own: .entry, .global. Code objects have names alone.
static const char *declared(const struct code *c, const char *word, const char *name) {
	const char *p = mention(c, c->image, name);
	if (is_elf(c))
		return p;
	for (; p; p = mention(c, p + 1, name)) {
		const char *line = p;
		while (line > c->image && line[-1] != '\n' && line[-1] != ';')
			line--;
		const char *w = memmem(line, (size_t)(p - line), word, strlen(word));
		if (w)
			return p;
	}
	return NULL;
}

// refused tells why a driver does not take an image, 0 if it does.
static int refused(const char *image) {
	unsigned major = 0, minor = 0, target = 0;
	int driver = (int)setting("FAKE_GPU_DRIVER", VERSION);
	if (!strncmp(image, "old", 3))
		return OLD_PTX;
	if (!strncmp(image, "fake", 4) || !memcmp(image, ELFMAG, SELFMAG))
		return 0;
	if (NAME(0, 1)) // PTX is NVIDIA's
		return BAD_PTX;
	const char *version = strstr(image, ".version"), *sm = strstr(image, ".target sm_");
	if (!version || sscanf(version, ".version %u.%u", &major, &minor) != 2)
		return BAD_PTX;
	if (major * 10 + minor > (unsigned)(driver / 1000 - 4) * 10 + (unsigned)(driver % 1000 / 10))
		return OLD_PTX;
	if (!sm || sscanf(sm, ".target sm_%u", &target) != 1 || target > setting("FAKE_GPU_ARCH", 90))
		return BAD_PTX;
	return 0;
}

static int loaded(uint64_t *module, const char *image, int dev) {
	int code = refused(image);
	if (code)
		return code;
	struct thing *t = make(MODULE, dev);
	struct code *c = t->object = calloc(1, sizeof(*c));
	c->n = image_size(image);
	c->dev = dev;
	c->image = malloc(c->n + 1);
	memcpy(c->image, image, c->n);
	c->image[c->n] = 0;
	*module = name_of(t);
	return 0;
}

#ifdef FAKE_HIP
DEF(, hipModuleLoadData, (uint64_t *module, const void *image)) {
	START("hipModuleLoadData\0" "cuModuleLoadDataEx")
	code = loaded(module, image, dev);
	END
}
#else
DEF(cuModuleLoadDataEx, , (uint64_t *module, const void *image, unsigned n, int *options, void **values)) {
	START("cuModuleLoadDataEx")
	code = loaded(module, image, dev);
	if (code && n == 2 && options[0] == 5 && options[1] == 6)
		snprintf(values[0], (size_t)(uintptr_t)values[1], "ptxas fatal: line 1: what is this\n");
	END
}
#endif

// drop_parts destroys the functions and variables of a module.
static void drop_parts(struct thing *module) {
	uint64_t name = name_of(module);
	for (int i = 1; i < most; i++) {
		struct thing *t = &things[i];
		if (t->kind == FUNCTION && ((struct function *)t->object)->module == name) {
			free(t->object);
			drop(t);
		} else if (t->kind == VARIABLE && t->object == module->object) {
			unused(CALLED(cuModuleUnload, hipModuleUnload), t->base, t->size);
			free((void *)(uintptr_t)t->base);
			drop(t);
		}
	}
}

DEF(cuModuleUnload, hipModuleUnload, (uint64_t module)) {
	START(CALLED(cuModuleUnload, hipModuleUnload))
	struct thing *t = named(MODULE, module);
	if (t) {
		for (struct stream *s = streams; s; s = s->next)
			for (struct task *work = broken[s->dev] ? NULL : s->head; work; work = work->next)
				if (work->module == t->object && !work->began)
					misuse("a module was unloaded while a kernel of it was queued");
		drop_parts(t);
		struct code *c = t->object;
		free(c->image);
		free(c);
		drop(t);
	} else {
		code = BAD_HANDLE;
	}
	END
}

DEF(cuModuleGetFunction, hipModuleGetFunction, (uint64_t * function, uint64_t module, const char *name)) {
	START(CALLED(cuModuleGetFunction, hipModuleGetFunction))
	struct thing *t = named(MODULE, module);
	struct code *c = t ? t->object : NULL;
	int fill = !strcmp(name, "fill");
	const struct fake_kernel *kernel = fake_kernel_find && !fill ? fake_kernel_find(name) : NULL;
	if (!t)
		code = BAD_HANDLE;
	else if ((is_fake(c) ? !fill : !declared(c, ".entry", name)) || (!fill && !fake_kernel_find))
		code = NOT_FOUND; // so says, too, who was compiled without any kernels
	else if (!fill && !kernel)
		misuse("the module has a kernel %s, which was not built for the CPU: native/gpu/testdata/emulator.sh tells which are", name);
	if (!code) {
		struct thing *f = make(FUNCTION, dev);
		struct function *is = f->object = calloc(1, sizeof(*is));
		*is = (struct function){c, kernel, module};
		*function = name_of(f);
	}
	END
}

// width is how long an element of a variable is, by the last of its types before the name: .b8, .u64
static size_t width(const char *line, const char *name) {
	for (const char *p = name; p > line; p--)
		if (*p == '.' && strchr("bsuf", p[1]) && atoi(p + 2) >= 8)
			return (size_t)atoi(p + 2) / 8;
	return 1;
}

// symbol_size is how long the tables of an ELF file say that a name is, 0 if they do not know it.
static size_t symbol_size(const struct code *c, const char *name) {
	Elf64_Ehdr e;
	Elf64_Shdr table, names;
	Elf64_Sym sym;
	memcpy(&e, c->image, sizeof(e));
	for (size_t i = 0; i < e.e_shnum; i++) {
		memcpy(&table, c->image + e.e_shoff + i * sizeof(table), sizeof(table));
		if (table.sh_type != SHT_SYMTAB && table.sh_type != SHT_DYNSYM)
			continue;
		memcpy(&names, c->image + e.e_shoff + table.sh_link * sizeof(names), sizeof(names));
		for (size_t at = 0; at < table.sh_size; at += sizeof(sym)) {
			memcpy(&sym, c->image + table.sh_offset + at, sizeof(sym));
			if (!strcmp(c->image + names.sh_offset + sym.st_name, name))
				return sym.st_size;
		}
	}
	return 0;
}

// variable_of makes the memory of a variable when it is first asked for; it has the size, and zeros whatever its first values are.
static struct thing *variable_of(struct thing *module, const char *name) {
	struct code *c = module->object;
	for (int i = 1; i < most; i++)
		if (things[i].kind == VARIABLE && things[i].object == c && !strcmp(things[i].handle, name))
			return &things[i];
	size_t n = 64;
	if (is_fake(c) ? strcmp(name, "state") : !declared(c, ".global", name))
		return NULL;
	if (is_elf(c)) {
		n = symbol_size(c, name);
	} else if (!is_fake(c)) {
		const char *p = declared(c, ".global", name), *line = p;
		while (line > c->image && line[-1] != '\n')
			line--;
		n = width(line, p) * (p[strlen(name)] == '[' ? (size_t)atoi(p + strlen(name) + 1) : 1);
	}
	struct thing *t = make(VARIABLE, module->dev);
	t->object = c;
	t->size = n;
	t->base = (uintptr_t)calloc(1, n);
	snprintf(t->handle, sizeof(t->handle), "%s", name);
	return t;
}

DEF(cuModuleGetGlobal_v2, hipModuleGetGlobal, (uint64_t * addr, size_t *n, uint64_t module, const char *name)) {
	START(CALLED(cuModuleGetGlobal_v2, hipModuleGetGlobal))
	struct thing *t = named(MODULE, module);
	struct thing *v = t ? variable_of(t, name) : NULL;
	code = !t ? BAD_HANDLE : !v ? NOT_FOUND : 0;
	if (!code) {
		*addr = v->base;
		*n = v->size;
	}
	END
}

DEF(cuFuncGetAttribute, hipFuncGetAttribute, (int *value, int attr, uint64_t function)) {
	START(CALLED(cuFuncGetAttribute, hipFuncGetAttribute))
	struct thing *t = named(FUNCTION, function);
	struct function *f = t ? t->object : NULL;
	*value = attr ? 32 : f && f->kernel ? (int)f->kernel->threads : 1024;
	code = f ? 0 : BAD_HANDLE;
	END
}

#ifndef FAKE_HIP
DEF(cuFuncSetAttribute, , (uint64_t function, int attr, int value)) {
	START("cuFuncSetAttribute")
	code = named(FUNCTION, function) && attr == 8 && value <= 232448 ? 0 : INVALID;
	END
}
#endif

// queued makes a launch of a kernel with its packed arguments.
static void queued(struct stream *s, struct thing *function, unsigned blocks, unsigned threads, const void *args, size_t n) {
	struct function *f = function->object;
	struct task *t = new_task(LAUNCH, n);
	struct thing *state = variable_of(named(MODULE, f->module), "mori_shmem_state");
	if (n)
		memcpy(t->args, args, n);
	t->n = n;
	t->module = f->code;
	t->launch = (struct fake_launch){f->kernel, blocks, threads, t->args, state ? (void *)(uintptr_t)state->base : NULL};
	push(s, t);
}

DEF(cuLaunchKernel, hipModuleLaunchKernel,
	(uint64_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, uint64_t stream,
		void **params, void **extra)) {
	START(CALLED(cuLaunchKernel, hipModuleLaunchKernel))
	struct thing *t = named(FUNCTION, function);
	struct stream *s = stream_of(stream, dev);
	struct function *f = t ? t->object : NULL;
	size_t want = f && f->kernel ? f->kernel->bytes : 16, n = 0;
	if (!t || t->dev != dev || !s)
		code = BAD_HANDLE;
	else if (params || (extra && (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)NAME(0, 3))))
		code = INVALID;
	else if ((n = extra ? *(size_t *)extra[3] : 0) != want)
		code = INVALID;
	else if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > (f->kernel ? f->kernel->threads : 1024) || shared > 232448)
		code = INVALID;
	if (!code && !setting("FAKE_GPU_IDLE", 0))
		queued(s, t, gx * gy * gz, bx * by * bz, extra ? extra[1] : NULL, n);
	END
}
