package istio

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshapi "istio.io/api/mesh/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/mesh"
)

const (
	// socketFile is the name of the Workload API's socket in the folder of SPIFFE's
	// CSI driver, as SPIRE's Helm chart has it. Told a name other than its default, a
	// proxy that does not find it fails to start, where it would otherwise take a
	// certificate from Istio's own authority.
	socketFile = "spire-agent.sock"
	// socketFolder is where Istio's proxy looks for it.
	socketFolder = "/run/secrets/workload-spiffe-uds"
	template     = "spire"
)

// Settings is what Istio's installation, and the principal's pod, must say for what
// [Render] returns to hold.
type Settings struct {
	// MeshConfig is part of Istio's.
	MeshConfig *meshapi.MeshConfig
	// Istiod has environment variables of istiod.
	Istiod map[string]string
	// Injection is a template of istiod's injector, by the name template: it gives a
	// proxy the Workload API of SPIRE.
	Injection map[string]any
	// Annotations are those of the principal's pod.
	Annotations map[string]string
}

// SettingsFor returns the settings for a snapshot. Errors are as with [Render].
func SettingsFor(s mesh.Snapshot, cfg Config) (Settings, error) {
	if s.Reach == nil {
		return Settings{}, nil
	}
	h, err := newHub(s, cfg)
	if err != nil {
		return Settings{}, err
	}
	out := Settings{
		// No aliases: a principal would mean its namesakes in all of them.
		MeshConfig: &meshapi.MeshConfig{TrustDomain: h.self.TrustDomain().Name()},
		Istiod:     map[string]string{},
		Injection:  injection(),
	}
	proxy := &meshapi.ProxyConfig{ProxyMetadata: map[string]string{"WORKLOAD_IDENTITY_SOCKET_FILE": socketFile}}
	if h.terminator == mesh.TerminatorPod {
		// The principal takes an agent's authority from NotAfter of its certificate.
		proxy.ProxyHeaders = &meshapi.ProxyConfig_ProxyHeaders{
			ForwardedClientCert: meshapi.ForwardClientCertDetails_SANITIZE_SET,
			SetCurrentClientCertDetails: &meshapi.ProxyConfig_ProxyHeaders_SetCurrentClientCertDetails{
				Cert: wrapperspb.Bool(true), Uri: wrapperspb.Bool(true),
			},
		}
		if len(foreign(h.reach.TrustDomains(), h.self.TrustDomain())) > 0 {
			// Else the proxy refuses all certificates of other trust domains, whatever
			// the policies say. They name each exactly.
			out.Istiod["PILOT_SKIP_VALIDATE_TRUST_DOMAIN"] = strconv.FormatBool(true)
		}
	}
	raw, err := toYAML(proxy)
	if err != nil {
		return Settings{}, err
	}
	out.Annotations = map[string]string{
		"inject.istio.io/templates": "sidecar," + template,
		"proxy.istio.io/config":     string(raw),
	}
	return out, nil
}

// SpokeSettings is what Istio's installation on a spoke must say for an agent, in whose trust domain the mesh is, to
// have a proxy with an identity of SPIRE.
func SpokeSettings(td spiffeid.TrustDomain) Settings {
	return Settings{MeshConfig: &meshapi.MeshConfig{TrustDomain: td.Name()}, Injection: injection()}
}

// injection mounts the socket's folder into the proxy.
func injection() map[string]any {
	const volume = "workload-socket"
	return map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{
			"name":         "istio-proxy",
			"volumeMounts": []any{map[string]any{"name": volume, "mountPath": socketFolder, "readOnly": true}},
		}},
		"volumes": []any{map[string]any{"name": volume, "csi": map[string]any{"driver": "csi.spiffe.io", "readOnly": true}}},
	}}
}

// Write writes the settings as YAML: values of the Helm chart istiod and, in a second document,
// the annotations, if there are any, as part of a Deployment.
func (s Settings) Write(w io.Writer) error {
	if s.MeshConfig == nil {
		return nil
	}
	config, err := asMap(s.MeshConfig)
	if err != nil {
		return err
	}
	injected, err := yaml.Marshal(s.Injection)
	if err != nil {
		return fmt.Errorf("render the injection template: %w", err)
	}
	values := map[string]any{
		"meshConfig":             config,
		"sidecarInjectorWebhook": map[string]any{"templates": map[string]any{template: string(injected)}},
	}
	if len(s.Istiod) > 0 {
		values["pilot"] = map[string]any{"env": s.Istiod}
	}
	type document struct {
		about   string
		content any
	}
	documents := []document{{"Values of the Helm chart istiod.", values}}
	if len(s.Annotations) > 0 {
		template := map[string]any{"metadata": map[string]any{"annotations": s.Annotations}}
		documents = append(documents, document{"Part of the principal's Deployment.",
			map[string]any{"spec": map[string]any{"template": template}}})
	}
	for i, document := range documents {
		raw, err := yaml.Marshal(document.content)
		if err != nil {
			return fmt.Errorf("render settings: %w", err)
		}
		separator := ""
		if i > 0 {
			separator = "---\n"
		}
		if _, err := fmt.Fprintf(w, "%s# %s\n%s", separator, document.about, raw); err != nil {
			return err
		}
	}
	return nil
}

func asMap(m proto.Message) (map[string]any, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("render %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return out, nil
}

func toYAML(m proto.Message) ([]byte, error) {
	value, err := asMap(m)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(value)
}

// Unstructured returns an object as it is sent and printed: without the empty status
// and creation time of the Go type.
func Unstructured(object Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("render %s %s: %w", strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind),
			object.GetName(), err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

// AllUnstructured returns each of objects by [Unstructured].
func AllUnstructured(objects []Object) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		var err error
		if out[i], err = Unstructured(object); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// WriteYAML writes the objects, one document each.
func WriteYAML(w io.Writer, objects []Object) error {
	for _, object := range objects {
		u, err := Unstructured(object)
		if err != nil {
			return err
		}
		raw, err := yaml.Marshal(u.Object)
		if err != nil {
			return fmt.Errorf("render %s: %w", object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", raw); err != nil {
			return err
		}
	}
	return nil
}
