// Package adopted keeps what was found where an object was adopted, for as long as someone
// may want it back: FoundStore writes and reads it, Remains takes away what no one needs.
package adopted

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// FoundStore keeps what was found where something was adopted: one Secret for each object,
// in the namespace of this side's Argo CD, since what was found may be a Secret. Its name
// follows from name and UID of the object, so that nothing is ever kept in the place of
// another one's.
//
// An object is adopted after its Secret is there, and the Secret goes after the object
// was given back. So a process may end in between, and go on writing beside its
// successor: Save does not replace what is later, Delete removes only what was loaded.
type FoundStore struct {
	Store     backends.Store
	Namespace string
}

// Annotations and data of such a Secret.
const (
	foundOfKey       = object.OwnPrefix + "found-of"
	foundRevisionKey = object.OwnPrefix + "found-revision"
	foundData        = "found"
	foundType        = object.OwnPrefix + "found"
	foundPrefix      = "argomesh-found-"
)

func (k FoundStore) key(of stream.ResourceKey, uid string) stream.ResourceKey {
	sum := sha256.Sum256([]byte(of.String() + "\x00" + uid))
	return stream.ResourceKey{Kind: stream.Secret, Namespace: k.Namespace,
		Name: foundPrefix + hex.EncodeToString(sum[:12])}
}

// Save returns once raw is durable, which is what was found in o. When something is kept
// that was found later, o is not the newest, and that is stream.ErrConflict.
func (k FoundStore) Save(ctx context.Context, o backends.Object, raw []byte) error {
	key, revision := k.key(o.Key, o.UID), object.Revision(o.ResourceVersion)
	secret := k.secret(key, o, raw)
	_, err := k.Store.Create(ctx, key, object.Encode(secret.Fields))
	if !errors.Is(err, stream.ErrConflict) {
		return err
	}
	kept, err := k.Store.Read(ctx, key)
	if err != nil {
		return err
	}
	before, err := object.Parse(kept)
	if err != nil {
		return err
	}
	switch earlier := object.Revision(before.Annotation(foundRevisionKey)); {
	case earlier == revision:
		return nil // by an attempt that did not come to the adoption
	case earlier > revision:
		return fmt.Errorf("%s was kept as it was later: %w", o.Key, stream.ErrConflict)
	}
	if err := k.remove(ctx, key, kept.UID, kept.ResourceVersion); err != nil {
		return err
	}
	_, err = k.Store.Create(ctx, key, object.Encode(secret.Fields))
	return err
}

func (k FoundStore) secret(key stream.ResourceKey, o backends.Object, raw []byte) object.Object {
	secret := object.New(key)
	secret.Fields["type"] = foundType
	secret.Fields["data"] = map[string]any{foundData: base64.StdEncoding.EncodeToString(raw)}
	secret.Ensure("metadata")["labels"] = map[string]any{"app.kubernetes.io/part-of": "argomesh"}
	secret.SetAnnotation(foundOfKey, o.Key.String())
	secret.SetAnnotation(foundRevisionKey, o.ResourceVersion)
	if o.Key.Namespace == k.Namespace {
		// With the object goes what was kept of it, no matter who deletes it. Else Remains sees to it.
		secret.Ensure("metadata")["ownerReferences"] = []any{map[string]any{
			"apiVersion": object.New(o.Key).Fields["apiVersion"], "kind": string(o.Key.Kind), "name": o.Key.Name, "uid": o.UID,
		}}
	}
	return secret
}

// Load reads what was found when the object of that UID was adopted.
func (k FoundStore) Load(ctx context.Context, of stream.ResourceKey, uid string) (*object.Found, error) {
	f := &object.Found{UID: uid, Lost: true}
	kept, err := k.Store.Read(ctx, k.key(of, uid))
	if errors.Is(err, stream.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was found: %w", err)
	}
	f.StoredUID, f.StoredVersion = kept.UID, kept.ResourceVersion
	if secret, err := object.Parse(kept); err == nil {
		f.Lost = !f.Read(object.SecretField(secret.Child("data"), foundData))
	}
	return f, nil
}

// Delete removes what was loaded.
func (k FoundStore) Delete(ctx context.Context, of stream.ResourceKey, f *object.Found) error {
	if f.StoredUID == "" {
		return nil // nothing was kept
	}
	return k.remove(ctx, k.key(of, f.UID), f.StoredUID, f.StoredVersion)
}

// remove removes what is kept under key, if it is what was read. If it is not, or is gone,
// that is no error: it is someone else's by now.
func (k FoundStore) remove(ctx context.Context, key stream.ResourceKey, uid, version string) error {
	err := k.Store.Delete(ctx, key, backends.Preconditions{UID: uid, ResourceVersion: version})
	if errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrConflict) {
		return nil
	}
	return err
}
