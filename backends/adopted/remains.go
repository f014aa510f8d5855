package adopted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

// FoundType is the type of the Secrets in which is kept what was found.
const FoundType = foundType

// Remains takes away what is kept of adopted objects that are gone: with a cascade, or
// because their owner deleted them. Where object and Secret are in one namespace, the
// garbage collector of the API server does so as well; across namespaces no one else would.
type Remains struct {
	Store backends.Store
	// Namespace is where the Secrets are.
	Namespace string
	// List returns all Secrets of FoundType of Namespace, from the API server itself. Of
	// each no more than its metadata is needed.
	List func(ctx context.Context) ([]backends.Object, error)
	Log  zerolog.Logger
}

// They are looked for when an adopted object is seen to go, and every remainsPause; after
// an error, remainsRetry later.
const (
	remainsPause = 10 * time.Minute
	remainsRetry = 30 * time.Second
)

// foundGoneKey is the annotation of such a Secret that is written, with another value each
// time, between two looks by which its object is gone. It is removed as it was written
// then: no backup that has this version of the Secret has the object, so that a restore in
// the midst of it loses nothing.
const foundGoneKey = object.OwnPrefix + "found-gone"

// Run works until ctx is done. Of several processes one runs it; others beside it do no
// harm.
func (r *Remains) Run(ctx context.Context) error {
	went := notify.NewSignal()
	cancel := r.Store.Deletions(func(d backends.Deletion) {
		if !wasAdopted(d.Last) {
			return
		}
		went.Notify()
	})
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-r.Store.Synced():
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-went:
		case <-next.C:
		}
		err := r.Remove(ctx)
		switch {
		case err == nil:
			next.Reset(remainsPause)
		case ctx.Err() == nil:
			if !failing {
				r.Log.Warn().Err(err).Msg("cannot clean up what is kept of adopted objects that are gone, retrying")
			}
			next.Reset(remainsRetry)
		}
		failing = err != nil
	}
}

// Remove takes away what is kept of objects that the API server does not have any more.
// What it may not read stays. It is called again after an error.
func (r *Remains) Remove(ctx context.Context) error {
	secrets, err := r.List(ctx)
	if errors.Is(err, stream.ErrRefused) {
		return nil // an agent that adopts nothing has no right to ask
	}
	if err != nil {
		return fmt.Errorf("list what was found: %w", err)
	}
	var failed error
	for _, o := range secrets {
		secret, err := object.Parse(o)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Key, err)
		}
		of, ok := parseFoundOf(secret.Annotation(foundOfKey))
		if !ok || !strings.HasPrefix(o.Key.Name, foundPrefix) || ctx.Err() != nil {
			continue // not as we write it
		}
		if err := r.remove(ctx, o.Key, of); err != nil && !errors.Is(err, stream.ErrRefused) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, ctx.Err())
}

// remove takes away one Secret if its object is gone.
func (r *Remains) remove(ctx context.Context, key, of stream.ResourceKey) error {
	k := FoundStore{Store: r.Store, Namespace: r.Namespace}
	if o, there := r.Store.Get(of); there && k.key(of, o.UID) == key {
		return nil
	}
	kept, err := r.Store.Read(ctx, key)
	if err != nil {
		return unlessMeanwhile(fmt.Errorf("read %s: %w", key, err))
	}
	if there, err := k.serves(ctx, key, of); there || err != nil {
		return err
	}
	secret, err := object.Parse(kept)
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	secret.SetAnnotation(foundGoneKey, uuid.NewString())
	if kept, err = r.Store.Update(ctx, kept, object.Encode(secret.Fields)); err != nil {
		return unlessMeanwhile(fmt.Errorf("mark %s: %w", key, err))
	}
	if there, err := k.serves(ctx, key, of); there || err != nil {
		return err // it was restored together with what is kept of it
	}
	if err := k.remove(ctx, key, kept.UID, kept.ResourceVersion); err != nil {
		return fmt.Errorf("remove %s: %w", key, err)
	}
	r.Log.Info().Stringer("resource", of).Str("secret", key.Name).
		Msg("adopted object is gone; removed what was kept of it from before its adoption")
	return nil
}

// serves reports whether the object is there of which the Secret key keeps what was found.
func (k FoundStore) serves(ctx context.Context, key, of stream.ResourceKey) (bool, error) {
	o, err := k.Store.Read(ctx, of)
	switch {
	case err == nil:
		return k.key(of, o.UID) == key, nil
	case errors.Is(err, stream.ErrNotFound):
		return false, nil
	}
	return false, fmt.Errorf("read %s: %w", of, err)
}

// unlessMeanwhile is err unless it says that someone else was faster: then the next look
// finds what is left.
func unlessMeanwhile(err error) error {
	if errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrConflict) {
		return nil
	}
	return err
}

// parseFoundOf reads what annotation foundOfKey says.
func parseFoundOf(s string) (stream.ResourceKey, bool) {
	kind, name, spaced := strings.Cut(s, " ")
	namespace, name, parted := strings.Cut(name, "/")
	key := stream.ResourceKey{Kind: stream.Kind(kind), Namespace: namespace, Name: name}
	switch key.Kind {
	case stream.Application, stream.AppProject, stream.Secret:
		return key, spaced && parted && namespace != "" && name != ""
	}
	return stream.ResourceKey{}, false
}

func wasAdopted(o backends.Object) bool {
	if !bytes.Contains(o.Raw, []byte(object.RecordKey)) {
		return false
	}
	parsed, err := object.Parse(o)
	if err != nil {
		return false
	}
	rec, _ := record.Of(parsed)
	return rec.Adopted != ""
}
