// Package accesswords has the words of `agentctl agent set --access`: what each switches on in
// spec.access of an Agent.
package accesswords

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/proxies/access"
)

// Off is live access of no kind, Read that of reading, and Masked shows Secrets without their
// values.
const (
	Off    = "off"
	Read   = "read"
	Masked = "masked-secrets"
)

// Word is what a word of --access switches on.
type Word struct {
	Name string
	// On reports whether an Agent has it.
	On func(*v1alpha1.AgentAccess) bool

	set func(*v1alpha1.AgentAccess, bool)
}

// All returns all words but [Off].
func All() []Word {
	plain := func(name string, of func(*v1alpha1.AgentAccess) *bool) Word {
		return Word{
			name, func(a *v1alpha1.AgentAccess) bool { return *of(a) }, func(a *v1alpha1.AgentAccess, on bool) { *of(a) = on },
		}
	}
	secrets := func(name string, shown v1alpha1.SecretsShown) Word {
		return Word{
			name, func(a *v1alpha1.AgentAccess) bool { return a.Secrets.Shown == shown },
			func(a *v1alpha1.AgentAccess, on bool) {
				switch {
				case on:
					a.Secrets.Shown = shown
				case a.Secrets.Shown == shown:
					a.Secrets.Shown = v1alpha1.SecretsOff
				}
			},
		}
	}
	out := []Word{
		plain(Read, func(a *v1alpha1.AgentAccess) *bool { return &a.Enabled }),
		secrets("secrets", v1alpha1.SecretsOn),
		secrets(Masked, v1alpha1.SecretsMasked),
	}
	for _, s := range access.Switches() {
		out = append(out, plain(s.Rule, s.OfAgent))
	}
	return append(out, plain("tracked-only", func(a *v1alpha1.AgentAccess) *bool { return &a.TrackedOnly }))
}

// Names returns all words but [Off].
func Names() []string {
	var out []string
	for _, s := range All() {
		out = append(out, s.Name)
	}
	return out
}

// Change returns access with the switches that words name on, and all others off.
func Change(access *v1alpha1.AgentAccess, words []string) (*v1alpha1.AgentAccess, error) {
	out := &v1alpha1.AgentAccess{}
	if access != nil {
		out = access.DeepCopy()
	}
	if slices.Contains(words, Off) {
		if len(words) > 1 {
			return nil, errors.New("--access: off goes alone")
		}
		out.Enabled = false
		return out, nil
	}
	if slices.Contains(words, "secrets") && slices.Contains(words, Masked) {
		return nil, fmt.Errorf("--access: give secrets, or %s, and not both", Masked)
	}
	for _, s := range All() {
		s.set(out, slices.Contains(words, s.Name))
	}
	for _, word := range words {
		if !slices.Contains(Names(), word) {
			return nil, fmt.Errorf("--access %q: off, or some of %s are expected", word, strings.Join(Names(), ", "))
		}
	}
	out.Enabled = true // each of them begins with reading
	return out, nil
}
