package argocd

// Where the password of Redis is in our pods.
const (
	passwordFolder = "/run/argocd-redis"
	passwordVolume = "argocd-redis"
)

// Values returns what our chart's values have to say so that our program uses the Redis of its
// Argo CD; nil where that cannot be told.
func (r *Redis) values() map[string]any {
	if r == nil || r.Cannot != "" {
		return nil
	}
	redis := map[string]any{"address": r.Address}
	values := map[string]any{"config": map[string]any{"redis": redis}}
	if r.Compression != "gzip" {
		redis["compression"] = r.Compression
	}
	if r.Secret != "" {
		redis["password_file"] = passwordFolder + "/" + r.Key
		values["extraVolumes"] = []any{map[string]any{
			"name": passwordVolume, "secret": map[string]any{"secretName": r.Secret},
		}}
		values["extraVolumeMounts"] = []any{map[string]any{
			"name": passwordVolume, "mountPath": passwordFolder, "readOnly": true,
		}}
	}
	return values
}

// HubValues returns the values of the principal's chart with which argocd-server sees the trees of
// spokes. nil where the Redis of this Argo CD cannot be told.
func (s State) HubValues() map[string]any {
	values := s.Redis.values()
	if values == nil {
		return nil
	}
	config, _ := values["config"].(map[string]any)
	config["redis_proxy"] = map[string]any{"listen": "unix:///run/argomesh/redis-proxy.sock"}
	config["envoy"] = map[string]any{"redis": "0.0.0.0:6379", "redis_tls": "none"}
	return values
}

// SpokeValues returns the values of the agent's chart with which the hub may read the trees in
// the Redis of this Argo CD. nil where that cannot be told.
func (s State) SpokeValues() map[string]any {
	values := s.Redis.values()
	if values == nil {
		return nil
	}
	config, _ := values["config"].(map[string]any)
	config["redis_proxy"] = map[string]any{"enabled": true}
	return values
}

// FillIn returns those of values that given, which wins, does not have: nothing when given says
// anything of our Redis already. Volumes are added to those that are there.
func FillIn(given, values map[string]any) map[string]any {
	config, _ := given["config"].(map[string]any)
	if values == nil || config["redis"] != nil || config["redis_proxy"] != nil {
		return nil
	}
	return absent(given, values)
}

// absent returns those of values that given does not have. Lists are given's with those of values
// after them.
func absent(given, values map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range values {
		there := given[key]
		switch value := value.(type) {
		case map[string]any:
			below, _ := there.(map[string]any)
			if rest := absent(below, value); len(rest) > 0 {
				out[key] = rest
			}
		case []any:
			before, _ := there.([]any)
			out[key] = append(append([]any{}, before...), value...)
		default:
			if there == nil {
				out[key] = value
			}
		}
	}
	return out
}
