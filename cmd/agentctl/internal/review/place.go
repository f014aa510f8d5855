package review

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity/inspect"
)

// What doctor says of a configuration is true of one cluster. With the kubeconfig of
// another all may seem well, or nothing, so it looks first where it is.

// side is whose cluster a configuration is for.
type side struct {
	name, program string // the program with its article
	configMap     string // that the program makes in the namespace of Argo CD
}

func hubSide() side {
	return side{name: "hub", program: "the principal", configMap: hubstate.ConfigMap}
}

// spokeSide has the ConfigMap in which an agent keeps what it saw of its hub's history.
func spokeSide() side { return side{name: "spoke", program: "the agent", configMap: agentconfig.Name} }

// cluster is what may be seen of one.
type cluster struct {
	host, namespace string
	argoCD          bool
	// has and lacks say what is known of ConfigMaps. One that may not be read is in neither.
	has, lacks map[string]bool
}

// checkCluster is observe and check.
func checkCluster(ctx context.Context, cfg *rest.Config, client dynamic.Interface, namespace string, mine,
	other side) ([]inspect.Finding, error) {
	p, err := observe(ctx, cfg, client, namespace)
	if err != nil {
		return nil, err
	}
	return p.check(mine, other)
}

// observe finds out what the cluster of a kubeconfig is.
func observe(ctx context.Context, cfg *rest.Config, client dynamic.Interface, namespace string) (cluster, error) {
	const doing = "look what the cluster is"
	p := cluster{host: cfg.Host, namespace: namespace, argoCD: true, has: map[string]bool{}, lacks: map[string]bool{}}
	_, err := client.Resource(cli.ProjectResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		p.argoCD = false
		return p, nil
	case err != nil && !apierrors.IsForbidden(err): // who reads them says that
		return p, cli.ExplainAPI(err, doing, "cluster", cfg.Host)
	}
	for _, s := range []side{hubSide(), spokeSide()} {
		_, err := client.Resource(cli.ConfigMapResource).Namespace(namespace).Get(ctx, s.configMap, metav1.GetOptions{})
		switch {
		case err == nil:
			p.has[s.configMap] = true
		case apierrors.IsNotFound(err):
			p.lacks[s.configMap] = true
		case !apierrors.IsForbidden(err):
			return p, cli.ExplainAPI(err, doing, "cluster", cfg.Host)
		}
	}
	return p, nil
}

// check says whether a cluster is that of a configuration for mine, rather than other's: an
// error when it is not, and a finding when there is nothing of either.
func (p cluster) check(mine, other side) ([]inspect.Finding, error) {
	choose := fmt.Sprintf("choose the %s's with --kubeconfig or --context", mine.name)
	switch {
	case !p.argoCD:
		return nil, fmt.Errorf("the cluster at %s has no Argo CD: it does not know AppProjects; %s", p.host, choose)
	case p.has[mine.configMap] || !p.lacks[mine.configMap]:
		return nil, nil
	case p.has[other.configMap]:
		return nil, fmt.Errorf("the cluster at %s is a %s: in namespace %s is ConfigMap %s of %s, and not %s of %s; %s",
			p.host, other.name, p.namespace, other.configMap, other.program, mine.configMap, mine.program, choose)
	}
	return []inspect.Finding{{
		Level: inspect.Warning, About: fmt.Sprintf("namespace %s of the cluster at %s", p.namespace, p.host),
		Says: fmt.Sprintf("may be another than the file is for: %s has never run there, since there is no ConfigMap %s",
			mine.program, mine.configMap),
		Cure: fmt.Sprintf("%s, or mend namespace in the file; where %s is yet to be installed there is nothing to mend",
			choose, mine.program),
	}}, nil
}
