package controller

import "encoding/json"

// Credentials are what Argo CD calls a cluster with, and knows it by: what we set of
// its ClusterConfig. The zero value calls without a token and trusts the system's
// authorities.
type Credentials struct {
	BearerToken string // a secret
	CA          []byte // authorities, as PEM
}

// credentialsJSON has Argo CD's names.
type credentialsJSON struct {
	BearerToken     string          `json:"bearerToken,omitempty"`
	TLSClientConfig clientTLSConfig `json:"tlsClientConfig"`
}

type clientTLSConfig struct {
	Insecure bool   `json:"insecure"`
	CAData   []byte `json:"caData,omitempty"`
}

// MarshalJSON returns the config of a cluster Secret, the same for the same
// credentials.
func (c Credentials) MarshalJSON() ([]byte, error) {
	return json.Marshal(credentialsJSON{BearerToken: c.BearerToken, TLSClientConfig: clientTLSConfig{CAData: c.CA}})
}

// UnmarshalJSON reads them out of a config, whatever else that has.
func (c *Credentials) UnmarshalJSON(content []byte) error {
	var in credentialsJSON
	if err := json.Unmarshal(content, &in); err != nil {
		return err
	}
	*c = Credentials{BearerToken: in.BearerToken, CA: in.TLSClientConfig.CAData}
	return nil
}
