//go:build linux

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// FrontDoor is a principal that serves live access, and the Envoy beside it.
type FrontDoor struct {
	*Principal
	Envoy *Sidecar
	// URL is that of Envoy, https://localhost:port.
	URL string
	// RedisAddress is that of Envoy for the hub's Argo CD, without TLS; empty when the
	// principal has no Redis.
	RedisAddress string
	// AuditFile has a line of JSON for each call.
	AuditFile string
}

// StartFrontDoor starts a principal with live access and its Envoy, and waits until
// both are ready. The entry of cfg.WorkloadAPI needs the DNS name localhost, by which
// callers know Envoy. With cfg.Redis there is a Redis proxy too; its address can be
// chosen with the setting envoy.redis.
func (h *Harness) StartFrontDoor(ctx context.Context, cfg PrincipalConfig) (*FrontDoor, error) {
	if cfg.WorkloadAPI == nil {
		return nil, errors.New("start front door: a Workload API is required")
	}
	if cfg.Name == "" {
		cfg.Name = "principal"
	}
	port, err := h.Port()
	if err != nil {
		return nil, err
	}
	d := &FrontDoor{
		URL:       fmt.Sprintf("https://localhost:%d", port),
		AuditFile: h.Path(cfg.Name + "-audit.jsonl"),
	}
	xds := "unix://" + h.Path(cfg.Name+"-xds.sock")
	settings := Settings{
		"envoy.listen":                         xds,
		"envoy.resource_proxy":                 fmt.Sprintf("127.0.0.1:%d", port),
		"resource_proxy.url":                   d.URL,
		"resource_proxy.listen":                "unix://" + h.Path(cfg.Name+"-proxy.sock"),
		"resource_proxy.audit.file":            d.AuditFile,
		"resource_proxy.credentials.enabled":   true,
		"resource_proxy.credentials.ca_bundle": true,
	}
	if cfg.Redis != nil {
		address, err := h.Address()
		if err != nil {
			return nil, err
		}
		settings["redis_proxy.listen"] = "unix://" + h.Path(cfg.Name+"-redis.sock")
		settings["envoy.redis"], settings["envoy.redis_tls"] = address, "none"
	}
	maps.Copy(settings, cfg.Settings)
	d.RedisAddress, _ = settings["envoy.redis"].(string)
	cfg.Settings = settings
	if d.Principal, err = h.StartPrincipal(ctx, cfg); err != nil {
		return nil, err
	}
	d.Envoy, err = h.StartSidecar(ctx, SidecarConfig{Name: cfg.Name + "-envoy", XDS: xds, WorkloadAPI: cfg.WorkloadAPI.Socket})
	return d, err
}

// ClusterAccess returns what Argo CD has of an agent's cluster: the server, the token
// and the authorities in the agent's cluster Secret on the hub. It waits until the
// Secret has a token.
func (h *Harness) ClusterAccess(ctx context.Context, hub *ControlPlane, agent string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(hub.REST())
	if err != nil {
		return nil, err
	}
	var found *rest.Config
	err = Eventually(ctx, "a token in the cluster Secret of "+agent, func() error {
		secret, err := client.CoreV1().Secrets(ArgoCDNamespace).Get(ctx, "cluster-"+agent, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found, err = ClusterConfig(secret.Data); err != nil {
			return Permanent(err)
		}
		if found.BearerToken == "" {
			return errors.New("it has none")
		}
		return nil
	})
	return found, err
}

// ClusterConfig reads the data of a cluster Secret in Argo CD's form, as far as it is
// about how to call.
func ClusterConfig(data map[string][]byte) (*rest.Config, error) {
	var config struct {
		BearerToken     string `json:"bearerToken"`
		TLSClientConfig struct {
			CAData []byte `json:"caData"`
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(data["config"], &config); err != nil {
		return nil, fmt.Errorf("cluster secret: %w", err)
	}
	return &rest.Config{
		Host: string(data["server"]), BearerToken: config.BearerToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: config.TLSClientConfig.CAData},
	}, nil
}

// WriteKubeconfig writes a kubeconfig of a server, a token and authorities.
func WriteKubeconfig(file string, from *rest.Config) error {
	const name = "spoke"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: from.Host, CertificateAuthorityData: from.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: from.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

// Kubectl returns a command of the pinned kubectl, which has not been started. Its
// cache of what it discovers is below folder.
func (h *Harness) Kubectl(ctx context.Context, folder, kubeconfig string, args ...string) (*exec.Cmd, error) {
	path, err := h.tools.Path("kubectl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", folder}, args...)...)
	cmd.Env = []string{"HOME=" + folder, "PATH=" + h.searchPath(), "TERM=dumb"}
	return cmd, nil
}
