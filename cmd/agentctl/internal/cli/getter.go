package cli

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// getter is a Connection in the form of kubectl's libraries. What it learns of the API it keeps
// for as long as the command runs.
type getter struct {
	conn      *Connection
	namespace string
	discovery discovery.CachedDiscoveryInterface
}

// Getter returns the connection in the form that kubectl's libraries and Helm want, for what is in a
// namespace where it names none. Nothing is contacted yet.
func (c *Connection) Getter(namespace string) genericclioptions.RESTClientGetter {
	return &getter{conn: c, namespace: namespace}
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return g.conn.Config() }

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	if g.discovery != nil {
		return g.discovery, nil
	}
	config, err := g.conn.Config()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	g.discovery = memory.NewMemCacheClient(client)
	return g.discovery, nil
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
}

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := *g.conn.Overrides
	overrides.Context.Namespace = g.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(g.conn.Rules, &overrides)
}
