package principalconfig

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

func TestCredentialsAreChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Credentials)
		want   string
	}{
		"a short token":    {func(c *Credentials) { c.TokenLife = time.Second }, "token_life: 1s is out of range"},
		"a long token":     {func(c *Credentials) { c.TokenLife = 31 * 24 * time.Hour }, "token_life"},
		"a fraction":       {func(c *Credentials) { c.TokenLife = time.Hour + 1 }, "use whole seconds"},
		"a short key":      {func(c *Credentials) { c.KeyLife = time.Hour }, "key_life: 1h0m0s is shorter"},
		"authorities both": {func(c *Credentials) { c.CAFile, c.CABundle = "x", true }, "ca_bundle: cannot be given beside ca_file"},
	} {
		c := DefaultCredentials()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		tt.change(&c)
		var key *config.KeyError
		if err := c.Validate(); !errors.As(err, &key) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
