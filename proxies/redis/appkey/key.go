// Package appkey has what both ends of the Redis proxy know of the keys under which Argo CD
// keeps what it shows of an Application, and the words in which the spoke refuses.
package appkey

import (
	"strings"
)

// The families of keys in which Argo CD keeps what it knows of one Application.
const (
	ManagedResources = "managed-resources"
	ResourcesTree    = "resources-tree"
)

const (
	// MaxKeyBytes is more than the longest Key: family, namespace and name of an
	// Application (RFC 1123), shard, version.
	MaxKeyBytes = 512
	// maxNamespaceBytes and maxNameBytes are those of Kubernetes.
	maxNamespaceBytes = 63
	maxNameBytes      = 253
	// maxShardDigits is more than the objects of any tree.
	maxShardDigits = 9
	// maxFormatBytes is the longest last field.
	maxFormatBytes = 64
)

// Instance is an Application as an Argo CD names it in its Redis.
type Instance struct {
	// Namespace is empty for an Application in Argo CD's own namespace.
	Namespace string
	Name      string
}

// String returns what is between the bars of a key.
func (i Instance) String() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "_" + i.Name
}

// Key is a key, or a channel, under which Argo CD keeps what it knows of one
// Application: app|<family>|<instance>[|<shard>]|<format>. The zero value is none.
type Key struct {
	// Family is managed-resources or resources-tree.
	Family   string
	Instance Instance
	// Shard is the number of a further part of a large tree, and empty for the first.
	Shard string
	// Format is the version of Argo CD's cache, with ".gz" behind it when values are
	// compressed. A channel never has that.
	Format string
}

// ParseKey returns false for what is not exactly such a key.
func ParseKey(text string) (Key, bool) {
	if len(text) > MaxKeyBytes || !strings.HasPrefix(text, "app|") {
		return Key{}, false
	}
	fields := strings.Split(text, "|")
	if len(fields) != 4 && len(fields) != 5 {
		return Key{}, false
	}
	k := Key{Family: fields[1], Format: fields[len(fields)-1]}
	if k.Family != ManagedResources && k.Family != ResourcesTree {
		return Key{}, false
	}
	if len(fields) == 5 {
		if k.Shard = fields[3]; k.Family != ResourcesTree || !isShard(k.Shard) {
			return Key{}, false
		}
	}
	// Neither a namespace nor a name has an underscore.
	namespace, name, qualified := strings.Cut(fields[2], "_")
	if !qualified {
		namespace, name = "", fields[2]
	}
	if qualified && !isLabel(namespace, maxNamespaceBytes) || !isName(name) || !IsFormat(k.Format) {
		return Key{}, false
	}
	k.Instance = Instance{Namespace: namespace, Name: name}
	return k, true
}

// String returns what [ParseKey] reads.
func (k Key) String() string {
	s := "app|" + k.Family + "|" + k.Instance.String()
	if k.Shard != "" {
		s += "|" + k.Shard
	}
	return s + "|" + k.Format
}

// Of is the same key of another Argo CD's Application.
func (k Key) Of(i Instance) Key {
	k.Instance = i
	return k
}

func isShard(s string) bool {
	if len(s) == 0 || len(s) > maxShardDigits || s[0] == '0' {
		return false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// isName reports whether s is a DNS subdomain (RFC 1123).
func isName(s string) bool {
	if len(s) > maxNameBytes {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label, maxNameBytes) {
			return false
		}
	}
	return true
}

func isLabel(s string, most int) bool {
	if s == "" || len(s) > most || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// IsFormat reports whether a text can be the last field of a key.
func IsFormat(s string) bool {
	if s == "" || len(s) > maxFormatBytes {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '.', c == '-', c == '+':
		default:
			return false
		}
	}
	return true
}

// CompressedFormat ends the formats in which values are compressed.
const CompressedFormat = ".gz"
