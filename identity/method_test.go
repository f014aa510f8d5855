package identity_test

import (
	"testing"

	"github.com/argomesh/argomesh/identity"
)

func TestMethods(t *testing.T) {
	for _, m := range identity.Methods() {
		if got, ok := identity.MethodNamed(m.Name); !ok || got != m {
			t.Errorf("MethodNamed(%q) = %v, %t", m.Name, got, ok)
		}
		if m.ByProxy && m.Gateway != identity.NeedsGateway {
			t.Errorf("%s believes a proxy, which is not in its way", m.Name)
		}
	}
	for _, name := range []string{"", "spiffe", "HEADER"} {
		if _, ok := identity.MethodNamed(name); ok {
			t.Errorf("there is a method %q", name)
		}
	}
	if got := identity.MethodNames(nil); got != "spiffe-x509, spiffe-jwt or header" {
		t.Errorf("MethodNames() = %q", got)
	}
	if got := identity.MethodNames(identity.Method.HasGateway); got != "spiffe-jwt or header" {
		t.Errorf("MethodNames() of those with a gateway = %q", got)
	}
	if got := identity.MethodNames(func(m identity.Method) bool { return m.ByProxy }); got != "header" {
		t.Errorf("MethodNames() of one = %q", got)
	}
}
