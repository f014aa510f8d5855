package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// keeper keeps what was found where something was adopted: one Secret for each object,
// in the namespace of this side's Argo CD, since what was found may be a Secret. Its name
// follows from name and UID of the object, so that nothing is ever kept in the place of
// another one's.
//
// An object is adopted after its Secret is there, and the Secret goes after the object
// was given back. So a process may end in between, and go on writing beside its
// successor: Keep does not replace what is later, Forget only what was recalled.
type keeper struct {
	store     backends.Store
	namespace string
}

// Annotations and data of such a Secret.
const (
	foundOfKey       = ownPrefix + "found-of"
	foundRevisionKey = ownPrefix + "found-revision"
	foundData        = "found"
	foundType        = ownPrefix + "found"
	foundPrefix      = "argomesh-found-"
)

func (k keeper) key(of stream.ResourceKey, uid string) stream.ResourceKey {
	sum := sha256.Sum256([]byte(of.String() + "\x00" + uid))
	return stream.ResourceKey{Kind: stream.Secret, Namespace: k.namespace, Name: foundPrefix + hex.EncodeToString(sum[:12])}
}

// keep returns once raw is durable, which is what was found in o. When something is kept
// that was found later, o is not the newest, and that is stream.ErrConflict.
func (k keeper) keep(ctx context.Context, o backends.Object, raw []byte) error {
	key, revision := k.key(o.Key, o.UID), revisionOf(o.ResourceVersion)
	secret := k.secret(key, o, raw)
	_, err := k.store.Create(ctx, key, encode(secret.fields))
	if !errors.Is(err, stream.ErrConflict) {
		return err
	}
	kept, err := k.store.Read(ctx, key)
	if err != nil {
		return err
	}
	before, err := parseObject(kept)
	if err != nil {
		return err
	}
	switch earlier := revisionOf(before.annotation(foundRevisionKey)); {
	case earlier == revision:
		return nil // by an attempt that did not come to the adoption
	case earlier > revision:
		return fmt.Errorf("%s was kept as it was later: %w", o.Key, stream.ErrConflict)
	}
	if err := k.forget(ctx, key, kept.UID, kept.ResourceVersion); err != nil {
		return err
	}
	_, err = k.store.Create(ctx, key, encode(secret.fields))
	return err
}

func (k keeper) secret(key stream.ResourceKey, o backends.Object, raw []byte) object {
	secret := newObject(key)
	secret.fields["type"] = foundType
	secret.fields["data"] = map[string]any{foundData: base64.StdEncoding.EncodeToString(raw)}
	secret.ensure("metadata")["labels"] = map[string]any{"app.kubernetes.io/part-of": "argomesh"}
	secret.setAnnotation(foundOfKey, o.Key.String())
	secret.setAnnotation(foundRevisionKey, o.ResourceVersion)
	if o.Key.Namespace == k.namespace {
		// With the object goes what was kept of it, whoever deletes it. Else Remains sees to it.
		secret.ensure("metadata")["ownerReferences"] = []any{map[string]any{
			"apiVersion": newObject(o.Key).fields["apiVersion"], "kind": string(o.Key.Kind), "name": o.Key.Name, "uid": o.UID,
		}}
	}
	return secret
}

// recall reads what was found when the object of that UID was adopted.
func (k keeper) recall(ctx context.Context, of stream.ResourceKey, uid string) (*found, error) {
	f := &found{uid: uid, lost: true}
	kept, err := k.store.Read(ctx, k.key(of, uid))
	if errors.Is(err, stream.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was found: %w", err)
	}
	f.keptUID, f.keptVersion = kept.UID, kept.ResourceVersion
	if secret, err := parseObject(kept); err == nil {
		f.lost = !f.read(secretField(secret.child("data"), foundData))
	}
	return f, nil
}

// forgetFound removes what was recalled.
func (k keeper) forgetFound(ctx context.Context, of stream.ResourceKey, f *found) error {
	if f.keptUID == "" {
		return nil // nothing was kept
	}
	return k.forget(ctx, k.key(of, f.uid), f.keptUID, f.keptVersion)
}

// forget removes what is kept under key, if it is what was read. If it is not, or is gone,
// that is no error: it is somebody else's by now.
func (k keeper) forget(ctx context.Context, key stream.ResourceKey, uid, version string) error {
	err := k.store.Delete(ctx, key, backends.Preconditions{UID: uid, ResourceVersion: version})
	if errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrConflict) {
		return nil
	}
	return err
}
