// A Kubernetes API server and the etcd it stands on, in one process: what kube-apiserver's own main
// does, with an etcd before it. No node, no controllers: it judges objects and keeps them.
//
//	server FOLDER FLAG...    etcd's data in FOLDER; the flags are kube-apiserver's
package main

import (
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	etcd := started(os.Args[1])
	servers := "--etcd-servers=http://" + etcd.Clients[0].Addr().String()
	command := app.NewAPIServerCommand()
	command.SetArgs(append(os.Args[2:], servers))
	code := cli.Run(command)
	etcd.Close()
	os.Exit(code)
}

func started(folder string) *embed.Etcd {
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config := embed.NewConfig()
	config.Dir = folder
	config.LogLevel = "error"
	config.UnsafeNoFsync = true // nothing of it outlives the tests
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	return etcd
}
