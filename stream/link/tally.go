package link

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"math/bits"

	"github.com/argomesh/argomesh/stream"
)

// tally sums entries of one collection. The zero value is the tally of no entries.
type tally struct {
	root    stream.Sum
	entries uint64
}

func (t *tally) add(key stream.EntryKey, v stream.Version) {
	if !v.Absent() {
		t.root = plus(t.root, termOf(key, v))
		t.entries++
	}
}

func (t *tally) remove(key stream.EntryKey, v stream.Version) {
	if !v.Absent() {
		t.root = minus(t.root, termOf(key, v))
		t.entries--
	}
}

func (t *tally) digest(c stream.Collection) stream.Digest {
	return stream.Digest{Collection: c, Root: t.root, Entries: t.entries}
}

func (t *tally) equals(d stream.Digest) bool { return t.root == d.Root && t.entries == d.Entries }

// sumsOf divides a tally of entries by their buckets. It is made when a repair asks
// for it: 4 KiB that are kept for every collection of every link would be more than
// most collections take themselves.
func sumsOf(entries iter.Seq2[stream.EntryKey, stream.Version]) *[stream.BucketCount]stream.Sum {
	sums := new([stream.BucketCount]stream.Sum)
	for key, v := range entries {
		if !v.Absent() {
			sum := &sums[bucketOf(key)]
			*sum = plus(*sum, termOf(key, v))
		}
	}
	return sums
}

// differing returns the buckets in which the sums differ.
func differing(a, b *[stream.BucketCount]stream.Sum) stream.BucketSet {
	var set stream.BucketSet
	for i := range stream.BucketCount {
		if a[i] != b[i] {
			set.Add(uint8(i))
		}
	}
	return set
}

// bucketOf spreads keys over the buckets; both sides must agree on it.
func bucketOf(key stream.EntryKey) uint8 {
	return sha256.Sum256([]byte(key.Namespace + "/" + key.Name))[0]
}

// termOf is what one entry adds to a sum. The fields are joined by a byte that
// none of them can hold.
func termOf(key stream.EntryKey, v stream.Version) stream.Sum {
	buf := make([]byte, 0, 256)
	for _, field := range []string{key.Namespace, key.Name, v.SourceUID} {
		buf = append(append(buf, field...), 0)
	}
	sum := sha256.Sum256(append(buf, v.Hash[:]...))
	return stream.Sum(sum[:16])
}

func plus(a, b stream.Sum) stream.Sum {
	low, carry := bits.Add64(binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(b[:8]), 0)
	high, _ := bits.Add64(binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:]), carry)
	return sumOf(low, high)
}

func minus(a, b stream.Sum) stream.Sum {
	low, borrow := bits.Sub64(binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(b[:8]), 0)
	high, _ := bits.Sub64(binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:]), borrow)
	return sumOf(low, high)
}

func sumOf(low, high uint64) (s stream.Sum) {
	binary.LittleEndian.PutUint64(s[:8], low)
	binary.LittleEndian.PutUint64(s[8:], high)
	return s
}
