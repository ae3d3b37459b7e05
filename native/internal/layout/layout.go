// SPDX-License-Identifier: MIT

package layout

import (
	"context"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/native/internal/emulate"
)

// compileTime bounds one run of a compiler on a busy machine.
const compileTime = 2 * time.Minute

// A Comparison is a header of ours and the vendor's. Paths are relative to the working directory.
type Comparison struct {
	Ours   string
	Guard  string // the include guard of Ours
	Vendor string // a header that includes the vendor's headers
	// Growing lists the structs that newer versions of the vendor's header may extend: the function
	// that fills one gets its size.
	Growing []string
}

// Compiler returns the C compiler that cgo uses.
func Compiler() string { return program("CC", "gcc") }

func program(variable, otherwise string) string {
	return append(strings.Fields(os.Getenv(variable)), otherwise)[0]
}

// Need skips a test where the compiler or the vendor's headers, of Debian's package pkg, are not
// installed. It fails the test where MORI_REQUIRE has what in its list.
func (c Comparison) Need(tb testing.TB, what, pkg string) {
	tb.Helper()
	missing := c.Missing()
	switch {
	case missing == nil:
	case emulate.Required(what):
		tb.Fatalf("MORI_REQUIRE has %s, and %s is not installed: %v", what, pkg, missing)
	default:
		tb.Skipf("the test compares the vendor's headers if %s is installed", pkg)
	}
}

// Missing returns why the vendor's headers cannot be read, nil if they can.
func (c Comparison) Missing() error {
	return compile(Compiler(), "-E", "-x", "c", "-o", os.DevNull, c.Vendor)
}

// Compile compiles a source that includes Ours, with Vendor in its place. A warning is an error.
func (c Comparison) Compile(source string, flags ...string) error {
	name := Compiler()
	if strings.HasSuffix(source, ".cpp") {
		name = program("CXX", "g++")
	}
	return compile(name, append([]string{"-fsyntax-only", "-Wall", "-Werror", "-D" + c.Guard, "-include", c.Vendor, source}, flags...)...)
}

func compile(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), compileTime)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// Run returns a line for each difference, in order.
func (c Comparison) Run() ([]string, error) {
	ours, err := read(c.Ours, nil)
	if err != nil {
		return nil, err
	}
	if len(ours.types) == 0 && len(ours.constants) == 0 {
		return nil, fmt.Errorf("%s declares no struct and no constant", c.Ours)
	}
	theirs, err := read(c.Vendor, slices.Sorted(maps.Keys(ours.constants)))
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(ours.constants)) {
		if a, b := ours.constants[name], theirs.constants[copied+name]; a != b {
			wrong = append(wrong, fmt.Sprintf("%s is %d, the vendor's is %d", name, a, b))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours.types)) {
		mine, its := ours.types[name], theirs.types[name]
		if its != nil {
			if text := c.sizes(name, mine, its); text != "" {
				wrong = append(wrong, text)
			}
		}
		wrong = append(wrong, differences(name, mine, its)...)
	}
	return wrong, nil
}

// sizes returns how the sizes of a struct differ, "" if they do not or may.
func (c Comparison) sizes(name string, ours, theirs *dwarf.StructType) string {
	if ours.ByteSize == theirs.ByteSize || ours.ByteSize < theirs.ByteSize && slices.Contains(c.Growing, name) {
		return ""
	}
	return fmt.Sprintf("%s has %d bytes, the vendor's has %d", name, ours.ByteSize, theirs.ByteSize)
}

func differences(name string, ours, theirs *dwarf.StructType) (wrong []string) {
	if theirs == nil {
		return []string{name + " is not in the vendor's header"}
	}
	mine, its := members(ours), members(theirs)
	for _, path := range slices.Sorted(maps.Keys(mine)) {
		a, b := mine[path], its[path]
		switch {
		case strings.HasPrefix(path[strings.LastIndexByte(path, '.')+1:], "unused"):
		case b == (member{}):
			wrong = append(wrong, fmt.Sprintf("%s.%s is not in the vendor's", name, path))
		case a != b:
			wrong = append(wrong, fmt.Sprintf("%s.%s is %v, the vendor's is %v", name, path, a, b))
		}
	}
	return wrong
}

// A member is where a part of a struct lies, and what it is.
type member struct {
	offset int64
	what   string
}

func (m member) String() string { return fmt.Sprintf("%s at %d", m.what, m.offset) }

// members are those of a struct or union by their paths. What is in a struct without a name counts
// as the members of the one around it.
func members(of *dwarf.StructType) map[string]member {
	all := map[string]member{}
	var walk func(s *dwarf.StructType, prefix string, at int64)
	walk = func(s *dwarf.StructType, prefix string, at int64) {
		for _, f := range s.Field {
			path := prefix + f.Name
			if inner, ok := bare(f.Type).(*dwarf.StructType); ok && inner.StructName == "" {
				if f.Name != "" {
					path += "."
				}
				walk(inner, path, at+f.ByteOffset)
				continue
			}
			all[path] = member{at + f.ByteOffset, describe(f.Type)}
		}
	}
	walk(of, "", 0)
	return all
}

// bare is a type without its typedefs and qualifiers.
func bare(t dwarf.Type) dwarf.Type {
	for {
		switch of := t.(type) {
		case *dwarf.TypedefType:
			t = of.Type
		case *dwarf.QualType:
			t = of.Type
		default:
			return t
		}
	}
}

// describe names what a type is in memory.
func describe(t dwarf.Type) string {
	switch of := bare(t).(type) {
	case *dwarf.PtrType:
		return "pointer to " + describe(of.Type)
	case *dwarf.StructType:
		return of.Kind + " " + of.StructName
	case *dwarf.EnumType:
		return "enum " + of.EnumName
	case *dwarf.ArrayType:
		return fmt.Sprintf("array of %d %s", of.Count, describe(of.Type))
	case *dwarf.FuncType:
		params := make([]string, len(of.ParamType))
		for i, p := range of.ParamType {
			params[i] = describe(p)
		}
		return fmt.Sprintf("function(%s) of %s", strings.Join(params, ", "), describe(of.ReturnType))
	case *dwarf.IntType, *dwarf.CharType:
		return fmt.Sprintf("int%d", 8*of.Size())
	case *dwarf.UintType, *dwarf.UcharType:
		return fmt.Sprintf("uint%d", 8*of.Size())
	case nil:
		return "void"
	default:
		return of.String()
	}
}

// A content is what a header declares.
type content struct {
	types     map[string]*dwarf.StructType
	constants map[string]int64
}

// copied begins the names of the constants that copy those of a header, where some are macros.
const copied = "mori_layout_"

// read compiles a header and reads the debug information of what its own text declares, and, where
// it includes others, of what they declare.
func read(header string, constants []string) (c content, err error) {
	path, err := filepath.Abs(header)
	if err != nil {
		return c, err
	}
	dir, err := os.MkdirTemp("", "mori-layout-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text := fmt.Sprintf("#include %q\n", path)
	if len(constants) > 0 {
		text += "enum {\n"
		for _, name := range constants {
			text += fmt.Sprintf("\t%s%s = %s,\n", copied, name, name)
		}
		text += "};\n"
	}
	source, object := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout.o")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return c, err
	}
	if err := compile(Compiler(), "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c", "-o", object, source); err != nil {
		return c, err
	}
	file, err := elf.Open(object)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err := file.DWARF()
	if err != nil {
		return c, err
	}
	return declared(data, func(file string) bool { return len(constants) > 0 || file == path })
}

// declared collects what is declared in the files that are wanted.
func declared(data *dwarf.Data, wanted func(file string) bool) (content, error) {
	c := content{types: map[string]*dwarf.StructType{}, constants: map[string]int64{}}
	var files []*dwarf.LineFile
	own := false // the constants that come next are of a wanted enum
	for r := data.Reader(); ; {
		e, err := r.Next()
		if e == nil || err != nil {
			return c, err
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch e.Tag {
		case dwarf.TagCompileUnit:
			lines, err := data.LineReader(e)
			if err != nil {
				return c, err
			}
			files = lines.Files()
		case dwarf.TagEnumerationType:
			own = declaredIn(e, files, wanted)
		case dwarf.TagEnumerator:
			if v, ok := e.Val(dwarf.AttrConstValue).(int64); ok && own {
				c.constants[name] = v
			}
		case dwarf.TagStructType, dwarf.TagUnionType:
			whole := e.Val(dwarf.AttrDeclaration) == nil
			if name == "" || !whole || !declaredIn(e, files, wanted) {
				continue
			}
			t, err := data.Type(e.Offset)
			if err != nil {
				return c, err
			}
			if s, ok := t.(*dwarf.StructType); ok {
				c.types[name] = s
			}
		}
	}
}

func declaredIn(e *dwarf.Entry, files []*dwarf.LineFile, wanted func(file string) bool) bool {
	i, ok := e.Val(dwarf.AttrDeclFile).(int64)
	return ok && int(i) < len(files) && files[i] != nil && wanted(files[i].Name)
}
