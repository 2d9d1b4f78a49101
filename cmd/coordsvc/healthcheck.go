package main

import (
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func healthcheckCommand(s *streams) *cobra.Command {
	client := &clientFlags{streams: s, retries: 0}
	var ready bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a service whether it lives; for container health checks",
		Long: `Ask a service whether it lives (exit code 0). With --ready: whether it should get traffic. Without --url it
asks the service that COORDSVC_LISTEN tells about (probes answer without a base path, too), else ` + defaultServer + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if client.server == "" {
				client.server = fromListen(s.getenv(envPrefix + "LISTEN"))
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			answer, err := client.call(cmd.Context(), http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			client.print(answer)
			return nil
		},
	}
	cmd.Flags().StringVar(&client.server, "url", "", "the service's URL")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask for readiness instead of life")
	cmd.Flags().DurationVar(&client.timeout, "timeout", 3*time.Second, "time for the call")
	cmd.Flags().BoolVarP(&client.quiet, "quiet", "q", false, "do not print the answer")
	return cmd
}

// fromListen turns an address to listen on into one to connect to.
func fromListen(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
