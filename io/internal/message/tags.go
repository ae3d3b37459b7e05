// SPDX-License-Identifier: MIT

package message

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
)

const (
	// MaxTag is the maximum length of a transfer's tag, in bytes.
	MaxTag = 64

	// MostTags is the maximum number of tags in one message: 49 KiB.
	MostTags = 512
)

// CheckTag returns an error if tag is not valid. An empty tag is valid and means no tag.
func CheckTag(tag string) error {
	if len(tag) > MaxTag || !utf8.ValidString(tag) {
		return fmt.Errorf("tag of %d bytes, want at most %d of valid UTF-8: %w", len(tag), MaxTag,
			errs.ErrInvalid)
	}
	return nil
}

// A Tag is the tag of a transfer, and the region of the receiver that the transfer accesses.
type Tag struct {
	UID    uint64
	Text   string
	Region descriptor.RegionKey
}

// PackTags encodes tags, grouped by region. A group starts with the region's id as a varint, its
// secret, and the number of its tags as a varint. Each tag is the uid as a varint, one byte of
// length, and the text.
func PackTags(all []Tag) []byte {
	var out []byte
	for i, t := range all {
		if i == 0 || t.Region != all[i-1].Region {
			n := 1
			for i+n < len(all) && all[i+n].Region == t.Region {
				n++
			}
			out = binary.AppendUvarint(out, uint64(t.Region.ID))
			out = append(out, t.Region.Secret[:]...)
			out = binary.AppendUvarint(out, uint64(n))
		}
		out = binary.AppendUvarint(out, t.UID)
		out = append(out, byte(len(t.Text)))
		out = append(out, t.Text...)
	}
	return out
}

// UnpackTags decodes the tags of one message, at most MostTags. A tag of 3 bytes takes 48 here, so
// the limit on their number bounds the memory that a peer can make this engine allocate.
func UnpackTags(in []byte) ([]Tag, error) {
	var out []Tag
	var region descriptor.RegionKey
	for left := uint64(0); len(in) > 0 || left > 0; left-- {
		if left == 0 {
			if in, left = unpackRegion(&region, in); left == 0 {
				return nil, fmt.Errorf("tags: bad region after %d: %w", len(out), errs.ErrInvalid)
			}
		}
		if len(out) == MostTags {
			return nil, fmt.Errorf("tags: more than %d in a message: %w", MostTags, errs.ErrInvalid)
		}
		uid, n := binary.Uvarint(in)
		if n <= 0 || n == len(in) {
			return nil, fmt.Errorf("tags: cut short after %d: %w", len(out), errs.ErrInvalid)
		}
		size, rest := int(in[n]), in[n+1:]
		if size > len(rest) || size == 0 || CheckTag(string(rest[:size])) != nil {
			return nil, fmt.Errorf("tags: bad text after %d: %w", len(out), errs.ErrInvalid)
		}
		out = append(out, Tag{uid, string(rest[:size]), region})
		in = rest[size:]
	}
	return out, nil
}

// unpackRegion reads a region and the number of its tags, 0 if it cannot.
func unpackRegion(r *descriptor.RegionKey, in []byte) (rest []byte, tags uint64) {
	id, n := binary.Uvarint(in)
	if n <= 0 || id > math.MaxUint32 || len(in) < n+len(r.Secret) {
		return nil, 0
	}
	r.ID = uint32(id)
	copy(r.Secret[:], in[n:])
	in = in[n+len(r.Secret):]
	tags, n = binary.Uvarint(in)
	if n <= 0 || tags > uint64(len(in)) {
		return nil, 0
	}
	return in[n:], tags
}
