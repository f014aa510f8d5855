// Package images asks registries whether they have what a chart names, and by which digests, before it is
// installed.
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

const (
	// askTimeout bounds the answer for one image.
	askTimeout = 10 * time.Second
	// atOnce is how many are asked for at a time.
	atOnce = 4
)

// Ours returns the name of an image of ours in a registry, without its tag.
func Ours(registry, program string) string { return strings.TrimSuffix(registry, "/") + "/" + program }

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
	// Digests are those of images that are there and are named by a tag.
	Digests map[string]string
	// Unasked are those of which no answer came, with the reason: the registry may be one that
	// only the cluster reaches, or wants other credentials than those of this machine.
	Unasked map[string]error
}

// Ask asks the registries, with the credentials that docker has on this machine.
func Ask(ctx context.Context, images []string) Answer {
	digests, answers := make([]string, len(images)), make([]error, len(images))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, image := range images {
		g.Go(func() error {
			digests[i], answers[i] = ask(ctx, image)
			return nil
		})
	}
	_ = g.Wait() // no one returns an error
	out := Answer{Digests: map[string]string{}, Unasked: map[string]error{}}
	for i, err := range answers {
		var refused *transport.Error
		switch {
		case err == nil && ByDigest(images[i]):
		case err == nil:
			out.Digests[images[i]] = digests[i]
		case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
			out.Missing = append(out.Missing, images[i])
		default:
			out.Unasked[images[i]] = err
		}
	}
	return out
}

// ask returns the digest of an image.
func ask(ctx context.Context, image string) (digest string, err error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	is, err := remote.Head(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", err
	}
	return is.Digest.String(), nil
}

// ByDigest reports whether an image is named by its digest, beside a tag or without one.
func ByDigest(image string) bool { return strings.Contains(image, "@") }

// ByTag are those images that are named by a tag alone.
func ByTag(images []string) []string { return slices.DeleteFunc(slices.Clone(images), ByDigest) }

// Kept are those digests, by names with tag, by which a chart names images.
func Kept(digests map[string]any, images []string) map[string]any {
	out := map[string]any{}
	for named, digest := range digests {
		if slices.Contains(images, fmt.Sprint(named, "@", digest)) {
			out[named] = digest
		}
	}
	return out
}

// Refusal is the error for images that are missing; nil for none.
func (a Answer) Refusal() error {
	if len(a.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("these images are in no registry, and nothing was written: %s; push them (\"make images REGISTRY=...\" pushes ours), or"+
		" name others with --registry or image and envoy of --values", strings.Join(a.Missing, ", "))
}

// Lines say, for people, of which images no answer came, why, and what helps: such an image stays named by its tag.
func (a Answer) Lines() (out []string) {
	for _, image := range slices.Sorted(maps.Keys(a.Unasked)) {
		out = append(out, fmt.Sprintf("whether there is an image %s could not be asked from here, so that it is named"+
			" by its tag: %s; run this again from where its registry is reached, with credentials for it, or name its"+
			" digest by --values", image, cli.OneLine(a.Unasked[image])))
	}
	return out
}

// Beside is the image of agentctl in the registry of the agent's, of the release that a chart has; "" where that
// of the agent is called otherwise than "make images" calls it.
func Beside(agent corev1.PodTemplateSpec, release string) string {
	if len(agent.Spec.Containers) == 0 {
		return ""
	}
	image, _, _ := strings.Cut(agent.Spec.Containers[0].Image, "@")
	ref, err := name.NewTag(image, name.WithDefaultTag(release))
	if err != nil {
		return ""
	}
	folder, is := strings.CutSuffix(ref.Context().Name(), "/agent")
	if !is {
		return ""
	}
	return Ours(folder, "agentctl") + ":" + ref.TagStr()
}
