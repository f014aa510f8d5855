package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecretName names the Secret with the keys, in the namespace of the hub's Argo CD.
const SecretName = "argomesh-token-keys"

const (
	// secretType tells our Secret from one that only has its name. It cannot be
	// changed in a Secret that exists.
	secretType = corev1.SecretType("argomesh.io/token-keys")
	secretData = "keys.json"
)

// ErrUnusable is wrapped when the Secret is there and its keys cannot be used. It is
// left as it is: new keys would end every token in use, which is for a person to
// decide, by deleting the Secret.
var ErrUnusable = errors.New("the signing keys cannot be used")

// stored is the content of the Secret.
type stored struct {
	// Hub is the identity of the hub whose keys they are.
	Hub      string     `json:"hub"`
	Next     *storedKey `json:"next,omitempty"`
	Current  *storedKey `json:"current,omitempty"`
	Previous *storedKey `json:"previous,omitempty"`
}

type storedKey struct {
	JWK         jose.JSONWebKey `json:"jwk"`
	Created     time.Time       `json:"created"`
	SignsSince  time.Time       `json:"signsSince,omitzero"`
	SignedUntil time.Time       `json:"signedUntil,omitzero"`
	// Longest is in seconds.
	Longest int64 `json:"longestSeconds,omitempty"`
}

// toSecret returns the Secret that holds a State.
func toSecret(namespace, hubUID string, s State) (*corev1.Secret, error) {
	content, err := json.Marshal(stored{Hub: hubUID, Next: s.Next.store(), Current: s.Current.store(),
		Previous: s.Previous.store()})
	if err != nil {
		return nil, fmt.Errorf("encode the signing keys: %w", err)
	}
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: SecretName, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "argomesh"},
		},
		Type: secretType,
		Data: map[string][]byte{secretData: content},
	}, nil
}

func (k *Key) store() *storedKey {
	if k == nil {
		return nil
	}
	jwk := k.public()
	jwk.Key = k.private
	return &storedKey{
		JWK: jwk, Created: k.Created, SignsSince: k.SignsSince, SignedUntil: k.SignedUntil,
		Longest: int64(k.Longest / time.Second),
	}
}

// fromSecret returns the keys that a Secret holds. The error wraps ErrUnusable and
// says nothing of the keys.
func fromSecret(secret *corev1.Secret, hubUID string) (State, error) {
	if secret.Type != secretType {
		return State{}, fmt.Errorf("%w: Secret %s was not made by Argomesh: its type is %q", ErrUnusable, secret.Name,
			secret.Type)
	}
	s, err := decode(secret.Data[secretData], hubUID)
	if err != nil {
		return State{}, fmt.Errorf("%w: Secret %s %w", ErrUnusable, secret.Name, err)
	}
	return s, nil
}

func decode(content []byte, hubUID string) (State, error) {
	var in stored
	decoder := json.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&in); err != nil {
		return State{}, errors.New("is damaged: it holds no JSON of keys") // the error may quote a key
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return State{}, errors.New("is damaged: something follows its keys")
	}
	if in.Hub != hubUID {
		return State{}, fmt.Errorf("is of another hub, not of %s", hubUID)
	}
	var s State
	seen := map[string]bool{}
	for _, one := range []struct {
		role string
		from *storedKey
		into **Key
	}{{"next", in.Next, &s.Next}, {"current", in.Current, &s.Current}, {"previous", in.Previous, &s.Previous}} {
		if one.from == nil {
			continue
		}
		key, err := one.from.key()
		if err != nil {
			return State{}, fmt.Errorf("is damaged: its key %s %w", one.role, err)
		}
		if seen[key.ID] {
			return State{}, fmt.Errorf("is damaged: its key %s is there twice", one.role)
		}
		seen[key.ID] = true
		*one.into = key
	}
	if c := s.Current; c != nil && (c.SignsSince.IsZero() || c.Longest <= 0) {
		return State{}, errors.New("is damaged: its key current signs since no time")
	}
	if p := s.Previous; p != nil && (p.SignedUntil.IsZero() || p.Longest <= 0) {
		return State{}, errors.New("is damaged: its key previous signed until no time")
	}
	return s, nil
}

func (k *storedKey) key() (*Key, error) {
	private, ok := k.JWK.Key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() || !k.JWK.Valid() {
		return nil, errors.New("is not a private key of P-256")
	}
	id, err := thumbprint(private)
	if err != nil || id != k.JWK.KeyID {
		return nil, errors.New("has an ID that is not its thumbprint")
	}
	if k.Longest < 0 || k.Longest > int64(MaxLife/time.Second) {
		return nil, errors.New("signs tokens of an impossible life")
	}
	return &Key{
		ID: id, Created: k.Created.UTC(), SignsSince: k.SignsSince.UTC(), SignedUntil: k.SignedUntil.UTC(),
		Longest: time.Duration(k.Longest) * time.Second, private: private,
	}, nil
}
