//go:build linux

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// driver is that of the Workload API's sockets.
const driver = "csi.spiffe.io"

// fill writes what is in a volume.
func (p *pod) fill(ctx context.Context, v corev1.Volume, dir string) error {
	var sources []corev1.VolumeProjection
	switch {
	case v.EmptyDir != nil:
		return nil
	case v.CSI != nil && v.CSI.Driver == driver:
		return p.serveWorkloadAPI(ctx, dir)
	case v.ConfigMap != nil:
		sources = append(sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}})
	case v.Secret != nil:
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}})
	case v.DownwardAPI != nil:
		sources = append(sources, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}})
	case v.Projected != nil:
		sources = v.Projected.Sources
	default:
		return errors.New("a volume of its kind is not known here")
	}
	for i := range sources {
		files, err := p.project(ctx, &sources[i])
		if err != nil {
			return err
		}
		if err := write(dir, files); err != nil {
			return err
		}
	}
	return nil
}

// project returns the files of a source, by their paths in the volume.
func (p *pod) project(ctx context.Context, s *corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case s.ServiceAccountToken != nil:
		token, err := p.token(ctx, s.ServiceAccountToken)
		return map[string][]byte{s.ServiceAccountToken.Path: []byte(token)}, err
	case s.ConfigMap != nil:
		data, err := p.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Optional)
		if err != nil {
			return nil, err
		}
		return chosen(data, s.ConfigMap.Items, s.ConfigMap.Optional, "ConfigMap "+s.ConfigMap.Name)
	case s.Secret != nil:
		data, err := p.secret(ctx, s.Secret.Name, s.Secret.Optional)
		if err != nil {
			return nil, err
		}
		return chosen(data, s.Secret.Items, s.Secret.Optional, "Secret "+s.Secret.Name)
	case s.DownwardAPI != nil:
		files := map[string][]byte{}
		for _, item := range s.DownwardAPI.Items {
			if item.FieldRef == nil {
				return nil, fmt.Errorf("%s of the downward API is not known here", item.Path)
			}
			value, err := fieldOf(p.is, item.FieldRef.FieldPath)
			if err != nil {
				return nil, err
			}
			files[item.Path] = []byte(value)
		}
		return files, nil
	}
	return nil, errors.New("a projected source of its kind is not known here")
}

// chosen are the files of an object that a volume names; all without any. Of an optional one a key may be missing.
func chosen(data map[string][]byte, items []corev1.KeyToPath, optional *bool, of string) (map[string][]byte, error) {
	if len(items) == 0 || data == nil {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		content, there := data[item.Key]
		switch {
		case there:
			files[item.Path] = content
		case optional == nil || !*optional:
			return nil, fmt.Errorf("%s has no key %s", of, item.Key)
		}
	}
	return files, nil
}

func write(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// token asks for one of the pod's service account, which ends with the pod.
func (p *pod) token(ctx context.Context, of *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: of.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.is.Name, UID: p.is.UID},
	}}
	if of.Audience != "" {
		request.Spec.Audiences = []string{of.Audience}
	}
	answer, err := p.node.client.CoreV1().ServiceAccounts(p.is.Namespace).CreateToken(ctx, p.is.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// configMap is what one has; nil for an optional one that is not there.
func (p *pod) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	is, err := p.node.client.CoreV1().ConfigMaps(p.is.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	maps.Copy(data, is.BinaryData)
	for key, value := range is.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// secret is configMap of a Secret.
func (p *pod) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	is, err := p.node.client.CoreV1().Secrets(p.is.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return is.Data, nil
}

// variables are those of a container, in their order.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, there := v.values[name]; !there {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) list() (out []string) {
	for _, name := range v.names {
		out = append(out, name+"="+v.values[name])
	}
	return out
}

// environment is what a container has, as Kubernetes makes it of its env.
func (p *pod) environment(ctx context.Context, env []corev1.EnvVar) (*variables, error) {
	out := &variables{values: map[string]string{}}
	for _, e := range env {
		value, there, err := p.valueOf(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if e.ValueFrom == nil {
			value = expand(value, out.values)
		}
		if there {
			out.set(e.Name, value)
		}
	}
	return out, nil
}

// valueOf is a variable's value; there is none where it is optional.
func (p *pod) valueOf(ctx context.Context, e corev1.EnvVar) (value string, there bool, err error) {
	from := e.ValueFrom
	var data map[string][]byte
	var key string
	var optional *bool
	switch {
	case from == nil:
		return e.Value, true, nil
	case from.FieldRef != nil:
		value, err = fieldOf(p.is, from.FieldRef.FieldPath)
		return value, true, err
	case from.SecretKeyRef != nil:
		key, optional = from.SecretKeyRef.Key, from.SecretKeyRef.Optional
		data, err = p.secret(ctx, from.SecretKeyRef.Name, optional)
	case from.ConfigMapKeyRef != nil:
		key, optional = from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional
		data, err = p.configMap(ctx, from.ConfigMapKeyRef.Name, optional)
	default:
		err = errors.New("a source of its kind is not known here")
	}
	if err != nil {
		return "", false, err
	}
	content, there := data[key]
	if !there && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("there is no key %s", key)
	}
	return string(content), there, nil
}

var (
	reference = regexp.MustCompile(`\$\$|\$\([-._a-zA-Z0-9]+\)`)
	ofMap     = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)
)

// expand puts values in the place of $(NAME), and $ in that of $$. A name without a value stays.
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, there := values[strings.Trim(found, "$()")]; there {
			return value
		}
		return found
	})
}

// fieldOf is a field of a pod that the downward API knows.
func fieldOf(is *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return is.Name, nil
	case "metadata.namespace":
		return is.Namespace, nil
	case "metadata.uid":
		return string(is.UID), nil
	case "spec.nodeName":
		return is.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return is.Spec.ServiceAccountName, nil
	case "status.podIP":
		return is.Status.PodIP, nil
	case "status.hostIP":
		return is.Status.HostIP, nil
	}
	if of := ofMap.FindStringSubmatch(path); of != nil {
		return map[string]map[string]string{"labels": is.Labels, "annotations": is.Annotations}[of[1]][of[2]], nil
	}
	return "", fmt.Errorf("field %s is not known here", path)
}
