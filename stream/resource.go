package stream

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/streampb"
)

// ResourceKey names one object of one Kubernetes cluster.
type ResourceKey struct {
	Kind      Kind
	Namespace string
	Name      string
}

func (k ResourceKey) String() string {
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k ResourceKey) Compare(other ResourceKey) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Name, other.Name))
}

// EntryKey names one entry of one collection in the terms of the wire, which
// both sides share: an empty namespace is the one in which the agent keeps the
// Applications it was not given another namespace for.
type EntryKey struct {
	Collection Collection
	Namespace  string
	Name       string
}

func (k EntryKey) String() string {
	if k.Namespace == "" {
		return k.Collection.String() + " " + k.Name
	}
	return k.Collection.String() + " " + k.Namespace + "/" + k.Name
}

// Hash is the first 16 bytes of a SHA-256 sum. The zero value is the hash of
// nothing we ever sent.
type Hash [16]byte

// HashOf hashes content in canonical form.
func HashOf(content []byte) Hash {
	sum := sha256.Sum256(content)
	return Hash(sum[:16])
}

// ParseHash reads the hexadecimal form that String writes.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if hex.DecodedLen(len(s)) != len(h) {
		return Hash{}, fmt.Errorf("hash of %d characters: %w", len(s), identity.ErrInvalid)
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return Hash{}, fmt.Errorf("hash %q: %w", s, identity.ErrInvalid)
	}
	return h, nil
}

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Version says which content of which object an entry is. The zero value is
// absence.
type Version struct {
	SourceUID string // UID of the object at its source
	Hash      Hash   // of the source's canonical form
}

// ValidUID reports whether s can be the UID of an object: 1 to 128 bytes without
// a zero byte, by which the sums of stream/link join fields.
func ValidUID(s string) bool {
	return s != "" && len(s) <= maxUIDBytes && strings.IndexByte(s, 0) < 0
}

// Absent reports whether v is the version of nothing.
func (v Version) Absent() bool { return v == Version{} }

func versionOf(v Version) *streampb.Version {
	return &streampb.Version{SourceUid: v.SourceUID, Hash: v.Hash[:]}
}

// parseVersion takes no absent version: there is none to be listed or held.
func parseVersion(uid string, hash []byte) (Version, error) {
	if !ValidUID(uid) || len(hash) != len(Hash{}) {
		return Version{}, fmt.Errorf("version of %d and %d bytes: %w", len(uid), len(hash), ViolationMalformed.Err())
	}
	return Version{SourceUID: uid, Hash: Hash(hash)}, nil
}
