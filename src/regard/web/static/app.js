document.title = "regard";
