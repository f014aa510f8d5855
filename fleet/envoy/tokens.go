package envoy

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/proxies/token"
)

// Tokens returns what checks the tokens for the resource proxy, and a channel that is
// closed when that changes. Before it is known there is an error, and Envoy keeps what
// it has.
type Tokens func() (check mesh.Tokens, changed <-chan struct{}, err error)

// Published are those of keys. Of a Secret that cannot be used there may be none:
// then no token is good, and Envoy serves what asks for none.
func Published(keys *token.Keys) Tokens {
	return func() (mesh.Tokens, <-chan struct{}, error) {
		changed := keys.Changed() // before the look, which may only be newer
		published := keys.Published()
		if published.Issuer == "" || len(published.KeyIDs) == 0 && !errors.Is(keys.Ready(), token.ErrUnusable) {
			return mesh.Tokens{}, changed, errors.New("there is no token key yet")
		}
		public, err := publicKeys(published.Keys)
		return mesh.Tokens{Issuer: published.Issuer, Audience: token.Audience, Keys: public,
			Leeway: token.Leeway}, changed, err
	}
}

// Acknowledged is token.Config.Acknowledged: whether Envoy has taken a key.
func Acknowledged(server *xds.Server) func(keyID string) bool {
	return func(keyID string) bool {
		taken, _ := server.Acknowledged()
		return slices.Contains(taken, keyID)
	}
}

// TellAcknowledged makes keys ask again whenever Envoy has taken others, until ctx is
// done.
func TellAcknowledged(ctx context.Context, server *xds.Server, keys *token.Keys) error {
	for {
		_, changed := server.Acknowledged()
		keys.AcknowledgedChanged()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// publicKeys returns the keys as the mesh knows them. A private one stays out of every
// message: it is an error, and so is one that is not of an elliptic curve.
func publicKeys(set jose.JSONWebKeySet) ([]mesh.Key, error) {
	keys := make([]mesh.Key, 0, len(set.Keys))
	for _, k := range set.Keys {
		public, ok := k.Key.(*ecdsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("token key %q is not a public key of an elliptic curve", k.KeyID)
		}
		keys = append(keys, mesh.Key{ID: k.KeyID, Public: public})
	}
	return keys, nil
}
