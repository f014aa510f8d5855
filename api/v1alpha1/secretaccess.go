package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// SecretsShown says what is shown of Secrets. Any other value than these shows nothing.
type SecretsShown string

// The values of [SecretsShown], the narrowest first.
const (
	// SecretsOff refuses whatever is about Secrets.
	SecretsOff SecretsShown = ""
	// SecretsMasked shows keys, and how long the values are. Nothing is watched and
	// nothing changed.
	SecretsMasked SecretsShown = "masked"
	// SecretsOn shows Secrets as they are.
	SecretsOn SecretsShown = "true"
)

// Words are the values as text, for settings of the agent.
func (SecretsShown) Words() []string { return []string{"true", "false", string(SecretsMasked)} }

// MarshalText implements encoding.TextMarshaler.
func (s SecretsShown) MarshalText() ([]byte, error) {
	if s == SecretsOff {
		return []byte("false"), nil
	}
	return []byte(s), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes every word for true and
// false that a switch takes.
func (s *SecretsShown) UnmarshalText(text []byte) error {
	if string(text) == string(SecretsMasked) {
		*s = SecretsMasked
		return nil
	}
	on, err := strconv.ParseBool(string(text))
	if err != nil {
		return fmt.Errorf("%q is not one of true, false and masked", text)
	}
	*s = SecretsOff
	if on {
		*s = SecretsOn
	}
	return nil
}

// SecretAccess is SecretsShown in an Agent: in JSON and YAML true, false or "masked". It
// is a struct since Kubernetes' converter to unstructured objects passes over the
// MarshalJSON of a text.
type SecretAccess struct {
	Shown SecretsShown `json:"-"`
}

// secretsUnknown is a value that shows nothing and that no word has.
const secretsUnknown SecretsShown = "unknown"

// MarshalJSON implements json.Marshaler.
func (s SecretAccess) MarshalJSON() ([]byte, error) {
	switch s.Shown {
	case SecretsOn:
		return []byte("true"), nil
	case SecretsOff:
		return []byte("false"), nil
	case SecretsMasked:
	}
	return json.Marshal(string(s.Shown))
}

// UnmarshalJSON implements json.Unmarshaler. A value that is not known shows nothing, and
// is no error, so that an Agent of a later release can be read.
func (s *SecretAccess) UnmarshalJSON(raw []byte) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	switch value {
	case nil, false:
		s.Shown = SecretsOff
	case true:
		s.Shown = SecretsOn
	case string(SecretsMasked):
		s.Shown = SecretsMasked
	default:
		s.Shown = secretsUnknown
	}
	return nil
}
