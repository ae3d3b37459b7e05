// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A record is a struct as the compiler lays it out.
type record struct {
	name   string // in Go
	origin string // in C++
	size   int64
	fields []field
}

// A field of a record. Its Go type has the same size.
type field struct {
	name   string // in Go
	origin string // in C++
	goType string
	offset int64
	size   int64
}

// An enumeration, with its values in order.
type enumeration struct {
	name, origin string
	bits         int64
	values       []constant
}

// A constant of an enumeration or a namespace.
type constant struct {
	name  string
	value uint64
}

// layouts is all that Go shares with kernels.
type layouts struct {
	records   []record
	enums     []enumeration
	constants []constant
	names     map[dwarf.Type]string // in Go, of records and enumerations
}

// probed begins the names of the enumerators that copy constants.
const probed = "mori_abi_"

// read compiles the headers below dir and returns what is shared.
func read(dir string, shares []share) (*layouts, error) {
	data, err := compile(dir, probe(shares))
	if err != nil {
		return nil, err
	}
	found, copies, err := declared(data)
	if err != nil {
		return nil, err
	}
	l := &layouts{names: map[dwarf.Type]string{}}
	for _, s := range shares {
		for _, name := range append(s.enums, s.structs...) {
			t := found[s.origin(name)]
			if t == nil {
				return nil, fmt.Errorf("mori::%s has no %s", s.namespace, name)
			}
			l.names[t] = s.prefix + goName(name)
		}
	}
	for i, s := range shares {
		for _, name := range s.enums {
			l.addEnum(found[s.origin(name)].(*dwarf.EnumType), s.origin(name))
		}
		for _, name := range s.structs {
			if err := l.addRecord(found[s.origin(name)], s, name); err != nil {
				return nil, err
			}
		}
		for j, text := range s.constants {
			name, _, _ := strings.Cut(text, "=")
			value, ok := copies[fmt.Sprintf("%s%d_%d", probed, i, j)]
			if !ok {
				return nil, fmt.Errorf("%s has no value", s.origin(name))
			}
			l.constants = append(l.constants, constant{s.prefix + goName(name), value})
		}
	}
	return l, nil
}

func (s *share) origin(name string) string { return "mori::" + s.namespace + "::" + name }

// probe returns a source that includes the headers and has an enumerator for each constant.
func probe(shares []share) string {
	var b strings.Builder
	for _, s := range shares {
		for _, h := range s.headers {
			fmt.Fprintf(&b, "#include \"mori/%s\"\n", h)
		}
	}
	b.WriteString("enum : uint64_t {\n")
	for i, s := range shares {
		for j, text := range s.constants {
			_, expression, ok := strings.Cut(text, "=")
			if !ok {
				expression = text
			}
			fmt.Fprintf(&b, "%s%d_%d = %s,\n", probed, i, j, s.origin(expression))
		}
	}
	b.WriteString("};\n")
	return b.String()
}

// compile compiles a source and returns its debug information.
func compile(include, source string) (_ *dwarf.Data, err error) {
	dir, err := os.MkdirTemp("", "mori-abi-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	object := filepath.Join(dir, "probe.o")
	compiler := strings.Fields(cmp.Or(os.Getenv("CXX"), "g++"))
	args := append(compiler[1:], "-std=c++17", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types",
		"-I"+include, "-c", "-x", "c++", "-o", object, "-")
	command := exec.Command(compiler[0], args...)
	command.Stdin = strings.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	file, err := elf.Open(object)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.DWARF()
}

// declared returns the structs and enumerations by their qualified names, and the enumerators that
// copy constants.
func declared(data *dwarf.Data) (found map[string]dwarf.Type, copies map[string]uint64, err error) {
	found, copies = map[string]dwarf.Type{}, map[string]uint64{}
	var scope []string // of the entry that comes next
	for r := data.Reader(); ; {
		e, err := r.Next()
		if e == nil || err != nil {
			return found, copies, err
		}
		if e.Tag == 0 {
			scope = scope[:len(scope)-1]
			continue
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch e.Tag {
		case dwarf.TagStructType, dwarf.TagEnumerationType:
			if e.Val(dwarf.AttrDeclaration) == nil && name != "" {
				if found[strings.Join(append(scope[1:], name), "::")], err = data.Type(e.Offset); err != nil {
					return nil, nil, err
				}
			}
		case dwarf.TagEnumerator:
			if v, ok := e.Val(dwarf.AttrConstValue).(int64); ok && strings.HasPrefix(name, probed) {
				copies[name] = uint64(v)
			}
		}
		if e.Children {
			scope = append(scope, name)
		}
	}
}

func (l *layouts) addEnum(t *dwarf.EnumType, origin string) {
	e := enumeration{name: l.names[t], origin: origin, bits: 8 * t.ByteSize}
	for _, v := range t.Val {
		e.values = append(e.values, constant{e.name + goName(v.Name), uint64(v.Val)})
	}
	l.enums = append(l.enums, e)
}

func (l *layouts) addRecord(t dwarf.Type, s share, name string) error {
	of, ok := t.(*dwarf.StructType)
	if !ok {
		return fmt.Errorf("%s is no struct", s.origin(name))
	}
	r := record{name: l.names[t], origin: s.origin(name), size: of.ByteSize}
	for _, f := range of.Field {
		goType, err := l.goType(f.Type)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", r.origin, f.Name, err)
		}
		r.fields = append(r.fields, field{goName(f.Name), f.Name, goType, f.ByteOffset, f.Type.Size()})
	}
	l.records = append(l.records, r)
	return nil
}

// goType returns the Go type of the same size. A pointer is an address.
func (l *layouts) goType(t dwarf.Type) (string, error) {
	if name := l.names[t]; name != "" {
		return name, nil
	}
	switch of := t.(type) {
	case *dwarf.TypedefType:
		return l.goType(of.Type)
	case *dwarf.QualType:
		return l.goType(of.Type)
	case *dwarf.PtrType:
		return "uint64", nil
	case *dwarf.IntType:
		return fmt.Sprintf("int%d", 8*of.ByteSize), nil
	case *dwarf.UintType:
		return fmt.Sprintf("uint%d", 8*of.ByteSize), nil
	case *dwarf.ArrayType:
		element, err := l.goType(of.Type)
		return fmt.Sprintf("[%d]%s", of.Count, element), err
	}
	return "", fmt.Errorf("a %s is not shared with Go", t)
}
