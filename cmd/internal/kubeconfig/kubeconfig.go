// Package kubeconfig makes client-go's configuration from ours. It owns where an API
// server is found and how its absence is explained; clients are left to the
// packages that use them.
//
//	rest, err := kubeconfig.Load(cfg.Kubernetes, "argomesh-principal/v0.1.0")
package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// Load returns the client configuration settings describe: of the kubeconfig
// when one is named, of the Kubernetes cluster the process runs in otherwise.
// Nothing is contacted. The error is one line with the key and the cure.
func Load(settings config.Kubernetes, userAgent string) (*rest.Config, error) {
	cfg, err := find(settings)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent
	cfg.QPS, cfg.Burst = settings.QPS, settings.Burst
	return cfg, nil
}

func find(settings config.Kubernetes) (*rest.Config, error) {
	if settings.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		switch {
		case errors.Is(err, rest.ErrNotInCluster):
			return nil, config.Invalid("kubernetes.kubeconfig",
				"is not set, and this process does not run in a Kubernetes cluster: give the path of a kubeconfig")
		case err != nil:
			return nil, fmt.Errorf("kubernetes.kubeconfig: is not set, and the service account of this pod is incomplete: %w",
				err)
		}
		return cfg, nil
	}

	file, err := clientcmd.LoadFromFile(settings.Kubeconfig)
	var unreadable *fs.PathError
	switch {
	case errors.As(err, &unreadable):
		return nil, fmt.Errorf("kubernetes.kubeconfig: read %s: %w: give the path of a readable kubeconfig",
			settings.Kubeconfig, unreadable.Err)
	case err != nil:
		return nil, config.Invalid("kubernetes.kubeconfig", "%s is not a kubeconfig: %s", settings.Kubeconfig, oneLine(err))
	}
	if err := checkContext(file, settings); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*file, settings.Context, &clientcmd.ConfigOverrides{}, nil).
		ClientConfig()
	if err != nil {
		return nil, config.Invalid("kubernetes.kubeconfig", "%s cannot be used: %s", settings.Kubeconfig, oneLine(err))
	}
	return cfg, nil
}

// checkContext says more than client-go does about a context that is missing.
func checkContext(file *api.Config, settings config.Kubernetes) error {
	if len(file.Contexts) == 0 {
		return config.Invalid("kubernetes.kubeconfig", "%s holds no context: give the path of a complete kubeconfig",
			settings.Kubeconfig)
	}
	known := strings.Join(slices.Sorted(maps.Keys(file.Contexts)), ", ")
	switch {
	case settings.Context != "" && file.Contexts[settings.Context] == nil:
		return config.Invalid("kubernetes.context", "%q is not in %s: use one of %s", settings.Context, settings.Kubeconfig,
			known)
	case settings.Context == "" && file.Contexts[file.CurrentContext] == nil:
		return config.Invalid("kubernetes.context", "is not set, and %s has no current context: use one of %s",
			settings.Kubeconfig, known)
	default:
		return nil
	}
}

// oneLine is the error's text without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
