package kube

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// secretsPage is how many Secrets one answer of the API server names.
const secretsPage = 500

// SecretsOfType returns a function that lists the Secrets of a namespace with that type, from
// the API server itself, and of each no more than its metadata. Its errors wrap kinds of
// package stream.
func SecretsOfType(client metadata.Interface, namespace,
	secretType string) func(context.Context) ([]backends.Object, error) {
	secrets := client.Resource(resourceOf(stream.Secret)).Namespace(namespace)
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("type", secretType).String(), Limit: secretsPage}
	return func(ctx context.Context) ([]backends.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
		var all []backends.Object
		for opts := opts; ; {
			page, err := secrets.List(ctx, opts)
			if err != nil {
				return nil, fmt.Errorf("list Secrets of type %s: %w: %w", secretType, kindOf(verbRead, err), err)
			}
			for _, item := range page.Items {
				raw, err := json.Marshal(item)
				if err != nil {
					return nil, fmt.Errorf("Secret %s: %w", item.Name, err)
				}
				all = append(all, backends.Object{
					Key: stream.ResourceKey{Kind: stream.Secret, Namespace: item.Namespace, Name: item.Name},
					UID: string(item.UID), ResourceVersion: item.ResourceVersion, Raw: raw,
				})
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				return all, nil
			}
		}
	}
}
