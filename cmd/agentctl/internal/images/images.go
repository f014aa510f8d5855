// Package images asks registries whether they have what a chart names, before it is installed.
package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// askTimeout bounds the answer for one image.
	askTimeout = 10 * time.Second
	// atOnce is how many are asked for at a time.
	atOnce = 4
)

// Of returns the images of the pods of objects, each once, sorted.
func Of(objects []*unstructured.Unstructured) []string {
	all := map[string]bool{}
	for _, o := range objects {
		for _, kind := range []string{"initContainers", "containers"} {
			list, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", kind)
			if err != nil {
				continue // no pods
			}
			for _, c := range list {
				container, _ := c.(map[string]any)
				if image, _ := container["image"].(string); image != "" {
					all[image] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Answer is what registries say of images.
type Answer struct {
	// Missing are those that their registry does not have.
	Missing []string
	// Unasked are those of which no answer came, with the reason: the registry may be one that
	// only the cluster reaches, or wants other credentials than those of this machine.
	Unasked map[string]error
}

// Ask asks the registries, with the credentials that docker has on this machine.
func Ask(ctx context.Context, images []string) Answer {
	answers := make([]error, len(images))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, image := range images {
		g.Go(func() error {
			answers[i] = ask(ctx, image)
			return nil
		})
	}
	_ = g.Wait() // no one returns an error
	out := Answer{Unasked: map[string]error{}}
	for i, err := range answers {
		var refused *transport.Error
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
			out.Missing = append(out.Missing, images[i])
		default:
			out.Unasked[images[i]] = err
		}
	}
	return out
}

func ask(ctx context.Context, image string) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err = remote.Head(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	return err
}

// Refusal is the error for images that are missing; nil for none.
func (a Answer) Refusal() error {
	if len(a.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("these images are in no registry, and nothing was written: %s; push them (\"make images\" makes ours), or"+
		" name others with --registry or image and envoy of --values", strings.Join(a.Missing, ", "))
}
