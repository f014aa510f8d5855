package object

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// ListAt is a list in decoded JSON; nil when there is none.
func ListAt(m map[string]any, key string) []any {
	list, _ := m[key].([]any)
	return list
}

// SetList sets a field to a list, and takes it away when there is nothing in it.
func SetList(m map[string]any, key string, list []any) {
	if len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
}

// InClusterName and InClusterServer are what Argo CD calls the cluster that it runs in.
const (
	InClusterName   = "in-cluster"
	InClusterServer = "https://kubernetes.default.svc"
)

// DefaultProjectName is what Argo CD takes an empty project for.
const DefaultProjectName = "default"

// ProjectOf is the project of an Application with that spec.
func ProjectOf(spec map[string]any) string {
	if project := StringAt(spec, "project"); project != "" {
		return project
	}
	return DefaultProjectName
}

// The ConfigMaps by which Argo CD checks repositories and commits. Both sides have
// them, and the spoke's owner may have put items of his own into his: what is the
// hub's is one item, a data key or a line of KnownHostsConfigMap, never the whole.
const (
	GPGKeysConfigMap         = "argocd-gpg-keys-cm"
	TLSCertificatesConfigMap = "argocd-tls-certs-cm"
	KnownHostsConfigMap      = "argocd-ssh-known-hosts-cm"
	// KnownHostsKey is the data key of KnownHostsConfigMap that has the lines.
	KnownHostsKey = "ssh_known_hosts"
)

// TrustConfigMaps names the ConfigMaps that are mirrored. No other need be read.
func TrustConfigMaps() []string {
	return []string{GPGKeysConfigMap, KnownHostsConfigMap, TLSCertificatesConfigMap}
}

// SecretTypeKey is the label by which Argo CD finds its Secrets.
const SecretTypeKey = "argocd.argoproj.io/secret-type"

// Values of SecretTypeKey that are mirrored: one repository, a template for all whose
// URL begins so, and the same with rights to write, which the hydrator needs. Those
// of clusters never are.
const (
	RepositoryType      = "repository"
	TemplateType        = "repo-creds"
	WriteRepositoryType = "repository-write"
	WriteTemplateType   = "repo-write-creds"
)

// CredentialTypes returns them all.
func CredentialTypes() []string {
	return []string{RepositoryType, TemplateType, WriteRepositoryType, WriteTemplateType}
}

// RepositorySelector is the label selector of the Secrets that may be mirrored. No
// other Secret need be read.
func RepositorySelector() string {
	return SecretTypeKey + " in (" + strings.Join(CredentialTypes(), ",") + ")"
}

// SelectorsOf names the objects of a kind that may be mirrored; none for all of them. No other
// need be read.
func SelectorsOf(kind stream.Kind) []backends.Selector {
	switch kind {
	case stream.Secret:
		return []backends.Selector{{Labels: RepositorySelector()}}
	case stream.ConfigMap:
		var names []backends.Selector
		for _, name := range TrustConfigMaps() {
			names = append(names, backends.Selector{Name: name})
		}
		return names
	}
	return nil
}

// MayBeMirrored reports whether SelectorsOf has room for an object of a kind with that name;
// what its labels say is for those who have it.
func MayBeMirrored(kind stream.Kind, name string) bool {
	selectors := SelectorsOf(kind)
	return len(selectors) == 0 ||
		slices.ContainsFunc(selectors, func(s backends.Selector) bool { return s.Name == "" || s.Name == name })
}

// IsCredential reports whether a value of SecretTypeKey is one that is mirrored.
func IsCredential(secretType string) bool { return slices.Contains(CredentialTypes(), secretType) }

// MayWrite reports whether a Secret of that type may write to repositories.
func MayWrite(secretType string) bool {
	return secretType == WriteRepositoryType || secretType == WriteTemplateType
}

// SecretField is the value of a key of a Secret's data; empty when it is none.
func SecretField(data map[string]any, key string) string {
	value, err := base64.StdEncoding.DecodeString(StringAt(data, key))
	if err != nil {
		return ""
	}
	return string(value)
}

// MaxQuotedBytes is how many bytes of a text of a peer Quoted has.
const MaxQuotedBytes = 160

// StringsAt is a list of strings; false when it is something else. One that is not there
// is empty.
func StringsAt(m map[string]any, field string) (list []string, ok bool) {
	if m[field] == nil {
		return nil, true
	}
	items, ok := m[field].([]any)
	for _, item := range items {
		s, is := item.(string)
		list, ok = append(list, s), ok && is
	}
	return list, ok
}

// Quoted is what a peer wrote, in quotes and not too long, as a message may have it.
func Quoted(s string) string {
	if len(s) > MaxQuotedBytes {
		s = strings.ToValidUTF8(s[:MaxQuotedBytes], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// AnyList is a list as decoded JSON has it.
func AnyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// New returns an object with nothing but its kind and name.
func New(key stream.ResourceKey) Object {
	version := "argoproj.io/v1alpha1"
	if key.Kind == stream.Secret || key.Kind == stream.ConfigMap {
		version = "v1"
	}
	return Object{Key: key, Fields: map[string]any{
		"apiVersion": version,
		"kind":       string(key.Kind),
		"metadata":   map[string]any{"namespace": key.Namespace, "name": key.Name},
	}}
}
